"""Work in the background: it delays nobody, is bounded, and is done before the cache closes."""

from __future__ import annotations

import asyncio

from ragcache.events import Degraded
from ragcache.pipeline import Budgets
from ragcache.store import reports
from ragcache.types import Document, Request

DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


def ask(tenant: str, number: int = 0) -> Request:
    question = f"What is fee number {number}?"
    return Request(tenant=tenant, question=question, documents=DOCUMENTS)


def slowly(store, seconds: float):
    put = store.put

    async def delayed(entry, snapshot):
        await asyncio.sleep(seconds)
        return await put(entry, snapshot)

    return delayed


async def test_nobody_waits_for_a_slow_store_and_closing_flushes_it(
    make, upstream, tenant, monkeypatch, postgres
):
    budgets = Budgets(store_s=10.0, put_s=0.01)
    cache = await make(embedder=None, budgets=budgets)
    monkeypatch.setattr(cache.store, "put", slowly(cache.store, 0.3))
    answers = [await cache.answer(ask(tenant, n)) for n in range(6)]
    assert {(a.status.stored, a.status.store_reason) for a in answers} == {(None, "store_pending")}
    await cache.close()
    assert len(reports.entries(postgres.ops, tenant)) == 6


async def test_more_than_can_wait_is_not_stored_and_says_so(
    make, upstream, tenant, monkeypatch, events
):
    from ragcache.budget import Backlog

    cache = await make(embedder=None, budgets=Budgets(store_s=10.0, put_s=0.0))
    cache._parts._backlog = Backlog(at_once=1, waiting=2)
    monkeypatch.setattr(cache.store, "put", slowly(cache.store, 0.5))
    reasons = [(await cache.answer(ask(tenant, n))).status.store_reason for n in range(6)]
    assert "store_queue_full" in reasons
    assert [e for e in events if isinstance(e, Degraded) and e.reason == "queue_full"]


async def test_an_exact_hit_never_embeds(make, upstream, tenant, table):
    cache = await make()
    await cache.answer(ask(tenant))
    embedded = len(table.texts)
    assert embedded == 1
    assert (await cache.answer(ask(tenant))).status.hit == "exact"
    folded = ask(tenant).replace(question="what is  fee number 0")
    assert (await cache.answer(folded)).status.hit == "exact"
    assert len(table.texts) == embedded
