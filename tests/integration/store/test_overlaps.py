"""An answer begun before an invalidation is never served after it, however the two overlap.

Each round begins an answer, lets storing it and an invalidation run into each other (the store
is slowed down at a random point), and then looks. The same rounds with the guard off show that
they do overlap.
"""

from __future__ import annotations

import asyncio
import random
from types import MappingProxyType

import pytest

from ragcache.store import near, postgres, storing
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from ragcache.store.storing import Storing
from ragcache.types import Document, TenantId
from tests.store_samples import NOW, entry, request, unit

KINDS = ("change", "epoch", "purge")


class Slow(Storing):
    """Stops for a moment while it stores: before it looks, after it has looked, or not at all."""

    dice = random.Random(20310402)

    async def lock_documents(self, connection, values):
        await self._stop()
        numbers = await super().lock_documents(connection, values)
        await self._stop()
        return numbers

    async def _stop(self):
        if self.dice.random() < 0.5:
            await asyncio.sleep(self.dice.random() * 0.004)


async def rounds(dsns: Dsns, tenant: str, count: int) -> tuple[int, int]:
    """Return how many answers were stored, and how many stale ones were served."""
    store = PostgresStore(dsns.app, pool_size=4, pool_wait_s=10, lookup_timeout_s=10)
    store._storing = Slow(quota=100_000)
    await store.open()
    outcomes = [await one_round(store, TenantId(f"{tenant}-{n % 7}"), n) for n in range(count)]
    await store.close()
    return sum(stored for stored, _ in outcomes), sum(stale for _, stale in outcomes)


async def one_round(store: PostgresStore, tenant: TenantId, number: int) -> tuple[bool, bool]:
    name = f"d{number}"
    asked = request(tenant, question=f"q{number}", documents=(Document(text=name, source=name),))
    made = entry(asked, vector=unit(1.0, number * 0.01))
    begun = await store.snapshot(made.scope, asked.documents)
    putting = asyncio.create_task(store.put(made, begun))
    await asyncio.sleep(Slow.dice.random() * 0.006)
    kind = KINDS[number % len(KINDS)]
    if kind == "change":
        await store.change(tenant, [name])
    elif kind == "epoch":
        await store.bump_epoch(tenant, made.scope.namespace)
    else:
        await store.purge(tenant)
    outcome = await putting
    exact = await store.find_exact(made.scope, made.keys, now=NOW)
    near = await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)
    served = [c.entry.id for c in (*exact, *near) if c.current]
    return outcome == "", made.id in served


def without_guard(monkeypatch):
    """Check, then write, and trust it: what the guard replaces."""
    unlocked = {name: text.replace("FOR SHARE", "") for name, text in storing._SQL.items()}
    lookup = dict(postgres._LOOKUP)
    for name in ("find_exact", "find_near"):
        before, compared, behind = lookup[name].partition("       e.epoch = coalesce(")
        assert compared
        lookup[name] = before + "true AS current" + behind.partition(" AS current")[2]
    monkeypatch.setattr(storing, "_SQL", MappingProxyType(unlocked))
    monkeypatch.setattr(postgres, "_LOOKUP", MappingProxyType(lookup))
    monkeypatch.setattr(near, "_SQL", MappingProxyType(lookup))


async def test_no_stale_answer_in_five_hundred_overlaps(postgres: Dsns, tenant):
    stored, stale = await rounds(postgres, tenant, 500)
    assert stored >= 50, "too few stores came first for the test to mean anything"
    assert stale == 0


async def test_the_same_rounds_without_the_guard_serve_stale_answers(
    postgres: Dsns, tenant, monkeypatch
):
    without_guard(monkeypatch)
    _, stale = await rounds(postgres, tenant, 200)
    assert stale >= 40


@pytest.mark.prove
@pytest.mark.timeout(3600)
async def test_no_stale_answer_in_ten_thousand_overlaps(postgres: Dsns, tenant):
    stored, stale = await rounds(postgres, tenant, 10_000)
    assert stored >= 1_000
    assert stale == 0


@pytest.mark.parametrize("guard", ["lock", "compare"])
async def test_storing_and_changing_take_turns(store, tenant, guard):
    """The change waits for the store that holds the document, or the store sees the change."""
    asked = request(tenant, documents=(Document(text="d", source="d"),))
    made = entry(asked)
    begun = await store.snapshot(made.scope, asked.documents)
    if guard == "compare":
        await store.change(tenant, ["d"])
        assert await store.put(made, begun) == "document_changed"
        return
    holding, go_on = asyncio.Event(), asyncio.Event()
    lock = store._storing.lock_documents

    async def held(connection, values):
        numbers = await lock(connection, values)
        holding.set()
        await go_on.wait()
        return numbers

    store._storing.lock_documents = held
    putting = asyncio.create_task(store.put(made, begun))
    await holding.wait()
    changing = asyncio.create_task(store.change(tenant, ["d"]))
    done, _ = await asyncio.wait({changing}, timeout=0.2)
    assert not done, "the change did not wait for the store"
    go_on.set()
    assert await putting == ""
    assert await changing == 1
    (found,) = await store.find_exact(made.scope, made.keys, now=NOW)
    assert not found.current
