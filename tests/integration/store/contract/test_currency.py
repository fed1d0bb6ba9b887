"""What is no longer current is not served: documents, epochs, purges, and answers on their way."""

from __future__ import annotations

import asyncio
import random

import pytest

from ragcache.types import Document, TenantId
from tests.store_samples import NOW, entry, request, scope, served, stored, unit

KINDS = ("change", "epoch", "purge")


async def test_a_changed_document_kills_exactly_its_entries(store, tenant):
    one, two = Document(text="one", source="a", id="i1"), Document(text="two", source="b")
    first = request(tenant, question="q1", documents=(one, two))
    second = request(tenant, question="q2", documents=(two,))
    third = request(tenant, question="q3", documents=(Document(text="three", aliases=("z",)),))
    for asked in (first, second, third):
        await stored(store, asked)
    assert await store.change(tenant, ["i1"]) == 1
    assert [bool(await served(store, a)) for a in (first, second, third)] == [False, True, True]
    assert await store.change(tenant, ["b", "z"]) >= 2
    assert [bool(await served(store, a)) for a in (first, second, third)] == [False] * 3


async def test_what_another_process_changed_is_not_served_here(store, another, tenant):
    asked = request(tenant, documents=(Document(text="d", source="s"),))
    await stored(store, asked)
    assert await served(store, asked)
    await (await another()).change(tenant, ["s"])
    assert not await served(store, asked)


async def test_an_unknown_document_is_no_error(store, tenant):
    assert await store.change(tenant, ["never seen"]) == 0


async def test_a_change_in_one_tenant_leaves_the_other_alone(store, tenant):
    documents = (Document(text="d", source="s"),)
    mine = request(tenant, documents=documents)
    theirs = request(TenantId(f"{tenant}-b"), documents=documents)
    for asked in (mine, theirs):
        await stored(store, asked)
    await store.change(tenant, ["s"])
    await store.bump_epoch(tenant, "default")
    assert not await served(store, mine)
    assert await served(store, theirs)


async def test_an_epoch_kills_one_namespace(store, tenant):
    mine, other = request(tenant), request(tenant, namespace="n2")
    for asked in (mine, other):
        await stored(store, asked)
    first = await store.bump_epoch(tenant, "default")
    assert await store.bump_epoch(tenant, "default") > first
    assert not await served(store, mine)
    assert await served(store, other)


async def test_what_is_no_longer_current_is_not_similar_either(store, tenant):
    asked = request(tenant, documents=(Document(text="d", source="s"),))
    made = await stored(store, asked)
    assert await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)
    await store.change(tenant, ["s"])
    assert not await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)


async def test_purging_a_tenant_removes_its_entries_only(store, tenant):
    mine, theirs = request(tenant), request(TenantId(f"{tenant}-b"))
    await stored(store, mine)
    await stored(store, theirs)
    assert await store.purge(tenant, dry_run=True) == 1
    assert await served(store, mine)
    assert await store.purge(tenant) == 1
    assert not await served(store, mine)
    assert await served(store, theirs)


@pytest.mark.parametrize("stored_before", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_on_its_way_comes_too_late(store, tenant, kind, stored_before):
    asked = request(tenant, documents=(Document(text="d", source="s"),))
    if stored_before:
        await stored(store, request(tenant, question="first"))
    begun = await store.snapshot(scope(asked), asked.documents)
    await invalidated(store, tenant, kind, "s")
    assert await store.put(entry(asked), begun) in ("epoch", "document_changed")
    assert not await served(store, asked)


async def test_no_stale_answer_in_overlaps_of_storing_and_invalidating(store, another, tenant):
    """Storing here and invalidating there run into each other at random points."""
    other, dice = await another(), random.Random(20310402)
    came_first = 0
    for number in range(150):
        name = f"d{number}"
        document = Document(text=name, source=name)
        asked = request(tenant, question=f"q{number}", documents=(document,))
        made = entry(asked, vector=unit(1.0, number * 0.01))
        begun = await store.snapshot(made.scope, asked.documents)
        putting = asyncio.create_task(store.put(made, begun))
        await asyncio.sleep(dice.random() * 0.006)
        await invalidated(other, tenant, KINDS[number % len(KINDS)], name)
        came_first += await putting == ""
        assert made.id not in await served(store, asked), (number, KINDS[number % len(KINDS)])
    assert came_first >= 10, "too few stores came first for the test to mean anything"


async def invalidated(store, tenant, kind, name) -> None:
    """Invalidate in one of the three ways."""
    if kind == "change":
        await store.change(tenant, [name])
    elif kind == "epoch":
        await store.bump_epoch(tenant, "default")
    else:
        await store.purge(tenant)
