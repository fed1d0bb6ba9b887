"""How long a request waits for its store is the operator's to say, all the way down."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from ragcache.factory import RagCache
from ragcache.settings import Settings
from ragcache.types import Answer, Document, Request

_ASKED = Request(
    tenant="harbour",
    question="What is the demurrage fee?",
    documents=(Document(text="The demurrage fee is 80 per day.", source="rules.md"),),
)


async def asked_while_locked(dsns, upstream, tmp_path, *, store_ms: float) -> Answer:
    """Store an answer, then ask again while nobody may read the entries for 0.4 seconds."""
    settings = Settings.load(
        api={"base_url": upstream.base_url},
        model={"name": "fake"},
        store={"dsn": dsns.app, "home": tmp_path},
        embedding={"model": ""},
        budgets={"store_ms": 5000, "put_ms": 5000} | {"store_ms": store_ms},
    )
    async with RagCache.open(settings) as cache:
        await cache.answer(_ASKED)
        await cache._parts.settled()
        async with await psycopg.AsyncConnection.connect(dsns.admin) as owner:
            await owner.execute("LOCK TABLE ragcache.entry IN ACCESS EXCLUSIVE MODE")
            asking = asyncio.create_task(cache.answer(_ASKED))
            await asyncio.sleep(0.4)
        return await asking


@pytest.mark.parametrize(("store_ms", "served"), [(5000, True), (150, False)])
async def test_a_store_slower_than_the_default_serves_where_the_budget_allows(
    fresh_database, upstream, tmp_path, store_ms, served
):
    answer = await asked_while_locked(fresh_database, upstream, tmp_path, store_ms=store_ms)
    assert (answer.status.hit == "exact") is served, answer.status
