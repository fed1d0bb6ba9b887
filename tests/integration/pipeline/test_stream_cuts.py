"""Streams cut at random, by the client or by the upstream, leave nothing half done behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random

import psycopg
import pytest

from ragcache.errors import TargetError
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = (Document(text="The fee of a berth is 80 per day.", source="tariff.pdf"),)
PIECES = ("The ", "fee ", "of ", "a ", "berth ", "is ", "80 ", "per ", "day.")
WHOLE = "".join(PIECES)


def ask(tenant: str, number: int) -> Request:
    return Request(tenant=tenant, question=f"What is fee number {number}?", documents=DOCUMENTS)


def stored_texts(dsn: str, tenant: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        rows = connection.execute("SELECT answer->>'text' FROM ragcache.entry").fetchall()
    return [text for (text,) in rows]


async def leave(cache, tenant, number, dice) -> None:
    """Read some of a stream, then go away: by closing it, or by being cancelled anywhere."""
    stream = cache.stream(ask(tenant, number))

    async def read(most: int) -> None:
        async with contextlib.aclosing(stream):
            seen = 0
            async for _ in stream:
                seen += 1
                if seen >= most:
                    return

    if dice.random() < 0.5:
        await read(dice.randrange(1, len(PIECES) + 3))
        return
    task = asyncio.create_task(read(100))
    await asyncio.sleep(dice.random() * 0.03)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def cut(make, upstream, postgres, tenant, count: int) -> None:
    """Cut so many streams; nothing may be left of them but whole answers."""
    cache = await make(embedder=None)
    dice = random.Random(20310402)

    def script(_):
        if dice.random() < 0.3:  # the upstream breaks off, or ends without saying so
            at = dice.randrange(len(PIECES))
            return Reply(pieces=PIECES, break_after=at, without_end=dice.random() < 0.5)
        return Reply(text=WHOLE, pieces=PIECES, piece_delay_s=dice.choice((0.0, 0.001, 0.004)))

    upstream.script = script
    await cache.answer(ask(tenant, -1).replace(no_store=True))
    before = asyncio.all_tasks()
    for first in range(0, count, 10):
        cuts = [leave(cache, tenant, n, dice) for n in range(first, min(count, first + 10))]
        outcomes = await asyncio.gather(*cuts, return_exceptions=True)
        assert {type(o) for o in outcomes} <= {type(None), TargetError}
    await cache._parts.settled(seconds=30)
    await nothing_left(cache, before)
    texts = stored_texts(postgres.ops, tenant)
    assert set(texts) <= {WHOLE}, "part of an answer was stored"
    assert len(texts) >= count * 0.05, "too few ended for the test to mean anything"
    await upstream_let_go(upstream)
    upstream.script = lambda _: Reply(text=WHOLE, pieces=PIECES)
    answer = await cache.answer(ask(tenant, count))
    assert answer.text == WHOLE


async def nothing_left(cache, before) -> None:
    """No task, no call under way, no connection of the pool, no lock."""
    gc.collect()
    async with asyncio.timeout(30):
        while len(cache._flight) or cache._parts._background or cache.store._locks._held:
            await asyncio.sleep(0.01)
        while cache.store._pool.get_stats()["requests_waiting"]:
            await asyncio.sleep(0.01)
        while True:
            stats = cache.store._pool.get_stats()
            if stats["pool_available"] == stats["pool_size"]:
                break
            await asyncio.sleep(0.01)
    left = {t for t in asyncio.all_tasks() - before if not of_the_pool(t)}
    left.discard(asyncio.current_task())
    assert not left, left


def of_the_pool(task: asyncio.Task) -> bool:
    return "pool" in task.get_name() or "pool-" in repr(task.get_coro())


async def upstream_let_go(upstream) -> None:
    """Every stream that the upstream opened was closed there."""
    async with asyncio.timeout(30):
        while upstream.opened != upstream.closed:
            await asyncio.sleep(0.02)


async def test_a_hundred_streams_cut_at_random_leave_nothing_half_done(
    make, upstream, postgres, tenant
):
    await cut(make, upstream, postgres, tenant, 100)


@pytest.mark.prove
@pytest.mark.timeout(1200)
async def test_a_thousand_streams_cut_at_random_leave_nothing_half_done(
    make, upstream, postgres, tenant
):
    await cut(make, upstream, postgres, tenant, 1000)


@pytest.mark.parametrize("kept", range(len(PIECES) + 1))
async def test_a_stream_that_the_upstream_breaks_off_passes_on_what_came_and_stores_nothing(
    make, upstream, postgres, tenant, kept
):
    cache = await make(embedder=None)
    upstream.answer(Reply(pieces=PIECES, break_after=kept, without_end=kept == len(PIECES)))
    got = ""
    with contextlib.suppress(TargetError):
        async for chunk in cache.stream(ask(tenant, kept)):
            got += chunk.text
    assert got == "".join(PIECES[:kept])
    await cache._parts.settled()
    assert stored_texts(postgres.ops, tenant) == []


async def test_what_is_cut_by_its_reader_is_cut_at_the_upstream(make, upstream, tenant):
    """The control: a stream that is read to its end is not."""
    cache = await make(embedder=None)
    upstream.answer(Reply(pieces=PIECES * 50, piece_delay_s=0.02))
    async with contextlib.aclosing(cache.stream(ask(tenant, 1))) as stream:
        async for _ in stream:
            break
    await upstream_let_go(upstream)
    assert upstream.opened == 1
