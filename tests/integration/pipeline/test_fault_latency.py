"""What a broken part of the cache adds to a request: no more than its budget, whatever breaks.

The target answers at once; what the same requests take without a store is taken off. The machine
may be busy: how late the event loop itself was meanwhile is measured beside it, and allowed for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np
import psycopg
import pytest

from ragcache.pipeline import Budgets
from ragcache.store.embedded import EmbeddedPostgres, Ensured, ensure
from ragcache.store.pair import PairStore
from ragcache.store.postgres import PostgresStore
from ragcache.store.redis.copies import RedisCopies
from ragcache.store.redis.store import RedisStore
from ragcache.types import Completion, Document, Embedding, Request, Usage
from tests.doubles.embedder import TableEmbedder
from tests.doubles.relay import relayed
from tests.fixtures_redis import redis_running
from tests.store_samples import NOW

BUDGET_MS, MARGIN_MS = 50.0, 10.0
DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


class Instant:
    """A target that answers at once."""

    provider, name, model = "generic", "instant", "m"

    async def complete(self, call):
        return Completion(text="The fee is 80.", finish_reason="stop", usage=Usage(), model="m")

    async def stream(self, call):
        raise NotImplementedError
        yield


def ask(tenant: str, number: int) -> Request:
    question = f"What is the fee of port {number}?"
    return Request(tenant=tenant, question=question, documents=DOCUMENTS)


@asynccontextmanager
async def lateness() -> AsyncIterator[list[float]]:
    """Collect how late the loop wakes a sleeper, in ms."""
    late: list[float] = [0.0]

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            late.append((time.perf_counter() - began) * 1000 - 5.0)

    ticker = asyncio.create_task(tick())
    try:
        yield late
    finally:
        ticker.cancel()


async def took_ms(cache, tenant, count: int, *, first: int = 0) -> tuple[list[float], float]:
    """Return what requests took, one after the other, and how late the loop was at most."""
    taken = []
    async with lateness() as late:
        for number in range(first, first + count):
            began = time.perf_counter()
            answer = await cache.answer(ask(tenant, number))
            taken.append((time.perf_counter() - began) * 1000)
            assert answer.text == "The fee is 80."
    return taken, max(late)


@pytest.fixture(scope="module")
def own() -> Iterator[Ensured]:
    """A server of this module's own, to be stopped, frozen and refused."""
    with tempfile.TemporaryDirectory(prefix="rc-own-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        ensured = ensure(Path(folder) / "pg")
        yield ensured
        ensured.server.stop()


def store(dsn: str) -> PostgresStore:
    """A store as a deployment has it: with the shipped bounds."""
    return PostgresStore(dsn)


@contextmanager
def frozen(ensured: Ensured) -> Iterator[None]:
    """Stop the server's processes where they stand."""
    children = Path(f"/proc/{ensured.server.pid}/task/{ensured.server.pid}/children").read_text()
    pids = [ensured.server.pid, *map(int, children.split())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def swallowed(relay) -> Iterator[None]:
    relay.swallowing = True
    try:
        yield
    finally:
        relay.swallowing = False


@contextmanager
def locked(dsn: str) -> Iterator[None]:
    """Hold the tables so that nobody can even read them."""
    with psycopg.connect(dsn) as holder:
        holder.execute("LOCK TABLE ragcache.entry, ragcache.namespace IN ACCESS EXCLUSIVE MODE")
        yield
        holder.rollback()


@contextmanager
def read_only(dsn: str) -> Iterator[None]:
    """Make the database a replica, as far as writers can tell."""
    set_to = "ALTER DATABASE postgres SET default_transaction_read_only = {}"
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND usename = 'ragcache_app'"
    )
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(set_to.format("on"))
        admin.execute(cut)
        yield
        admin.execute("SET default_transaction_read_only = off")
        admin.execute(set_to.format("off"))
        admin.execute(cut)


@asynccontextmanager
async def exhausted(opened: PostgresStore) -> AsyncIterator[None]:
    """Hold every connection of the pool."""
    held = [opened._pool.connection(timeout=10) for _ in range(8)]
    for one in held:
        await one.__aenter__()
    try:
        yield
    finally:
        for one in held:
            await one.__aexit__(None, None, None)


@asynccontextmanager
async def broken_off(dsn: str) -> AsyncIterator[None]:
    """Terminate the app role's connections over and over."""
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'ragcache_app'"
    admin = await psycopg.AsyncConnection.connect(dsn, autocommit=True)

    async def go_on() -> None:
        while True:
            await admin.execute(cut)
            await asyncio.sleep(0.02)

    going = asyncio.create_task(go_on())
    try:
        yield
    finally:
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        await admin.close()


async def recovers(cache, tenant) -> None:
    """The same cache serves again, without a restart."""
    async with asyncio.timeout(60):
        while True:
            if (await cache.answer(ask(tenant, 0))).status.hit == "exact":
                return
            await asyncio.sleep(0.05)


FAULTS = ["swallowed", "frozen", "locked", "exhausted", "broken_off", "read_only", "gone"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_store_that_fails_adds_at_most_its_budget_and_is_used_again(
    make, own: Ensured, tenant, fault
):
    with relayed(own.dsns.app) as (relay, through):
        opened = store(through if fault == "swallowed" else own.dsns.app)
        cache = await make(target=Instant(), store=opened, embedder=None, budgets=Budgets())
        await recovers(cache, tenant)  # whatever is slow the first time has been done
        without = await make(target=Instant(), store=None, embedder=None)
        usual, _ = await took_ms(without, tenant, 12, first=50)
        breaking = {
            "swallowed": lambda: swallowed(relay),
            "frozen": lambda: frozen(own),
            "locked": lambda: locked(own.dsns.admin),
            "exhausted": lambda: exhausted(opened),
            "broken_off": lambda: broken_off(own.dsns.admin),
            "read_only": lambda: read_only(own.dsns.admin),
            "gone": lambda: stopped(own.server),
        }[fault]()
        taken, late = await under(breaking, cache, tenant)
        if fault != "gone":
            await recovers(cache, tenant)
    added = max(taken) - statistics.median(usual)
    print(f"{fault}: at most {added:.1f} ms added, loop late by {late:.1f} ms")
    assert added <= BUDGET_MS + MARGIN_MS + late, (fault, sorted(taken)[-3:], usual, late)


@pytest.mark.parametrize("kind", ["redis", "pair"])
async def test_a_redis_that_says_nothing_adds_at_most_the_budget(make, postgres, tenant, kind):
    """Alone it is a miss; in front of Postgres the answer comes from there."""
    with redis_running("bare") as server:
        front = RedisCopies(server.dsn, lookup_timeout_s=0.02)
        paired = PairStore(front, store(postgres.app), dsn=postgres.app)
        opened = paired if kind == "pair" else RedisStore(server.dsn)
        cache = await make(target=Instant(), store=opened, embedder=None, budgets=Budgets())
        await recovers(cache, tenant)
        without = await make(target=Instant(), store=None, embedder=None)
        usual, _ = await took_ms(without, tenant, 12, first=50)
        server.freeze()
        taken, late = await probed(cache, tenant)
        served = await cache.answer(ask(tenant, 0))
        server.thaw()
        await recovers(cache, tenant)
        await cache.close()
    added = max(taken) - statistics.median(usual)
    print(f"{kind}: at most {added:.1f} ms added, loop late by {late:.1f} ms")
    assert (served.status.hit == "exact") == (kind == "pair")
    assert added <= BUDGET_MS + MARGIN_MS + late, (kind, sorted(taken)[-3:], usual, late)


async def under(breaking, cache, tenant) -> tuple[list[float], float]:
    """Measure while something is broken: also past the breaker's pause, when it probes."""
    if hasattr(breaking, "__aenter__"):
        async with breaking:
            return await probed(cache, tenant)
    with breaking:
        return await probed(cache, tenant)


async def probed(cache, tenant) -> tuple[list[float], float]:
    first, late = await took_ms(cache, tenant, 20, first=100)
    cache._parts._store_breaker._closed_again_at = 0.0  # its pause is over
    then, later = await took_ms(cache, tenant, 20, first=200)
    return first + then, max(late, later)


@contextmanager
def stopped(server: EmbeddedPostgres) -> Iterator[None]:
    """The server is down; a new one takes its place afterwards."""
    server.stop()
    yield
    server.start()


class Faulty(TableEmbedder):
    """An embedder with one fault."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    async def embed(self, texts):
        if self.fault == "raises":
            raise RuntimeError("no weights")
        if self.fault == "hangs":
            await asyncio.sleep(3600)
        vectors = {
            "nan": np.full(16, np.nan, dtype=np.float32),
            "zero": np.zeros(16, dtype=np.float32),
            "short": np.ones(7, dtype=np.float32),
        }
        return [Embedding(text=text, vector=vectors[self.fault]) for text in texts]


@pytest.mark.parametrize("fault", ["raises", "hangs", "nan", "zero", "short"])
async def test_an_embedder_that_fails_adds_at_most_its_deadline(make, postgres, tenant, fault):
    deadline_ms = 100.0
    cache = await make(
        target=Instant(),
        store=store(postgres.app),
        embedder=Faulty(fault),
        budgets=Budgets(store_s=10.0, embed_s=deadline_ms / 1000, put_s=0.0),
    )
    healthy = await make(target=Instant(), embedder=None, store=store(postgres.app))
    usual, _ = await took_ms(healthy, tenant, 8, first=50)
    taken, late = await took_ms(cache, tenant, 8)
    added = max(taken) - statistics.median(usual)
    print(f"{fault}: at most {added:.1f} ms added, loop late by {late:.1f} ms")
    assert added <= deadline_ms + MARGIN_MS + late
    await cache._parts.settled()
    with psycopg.connect(postgres.ops) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        row = connection.execute(
            "SELECT count(*) FROM ragcache.entry WHERE embedder = 'table'"
        ).fetchone()
    assert row == (0,), "something was stored under an embedder that gave nothing"


async def test_an_open_breaker_adds_next_to_nothing(make, tenant):
    """Against the same requests without a store, in turns. Nothing waits, so that the time of
    the processor is all there is; it knows nothing of what else the machine does.
    """
    closed = PostgresStore("host=/nonexistent user=x dbname=x", open_wait_s=0.05)
    cache = await make(target=Instant(), store=closed, embedder=None, budgets=Budgets())
    without = await make(target=Instant(), store=None, embedder=None)
    for number in range(10):
        await cache.answer(ask(tenant, number))
    await closed._pool.close()  # it goes on trying to connect, which is not what is measured
    breaker = cache._parts._store_breaker
    breaker.pause_s = 3600.0
    breaker.fell()
    assert cache._parts.store_is_away
    rounds = [await added_ms(cache, without, tenant) for _ in range(3)]
    print(rounds)  # what else the machine does only adds: the best round is the nearest to true
    assert min(p50 for p50, _ in rounds) <= 0.5
    assert min(p99 for _, p99 in rounds) <= 1.0


async def added_ms(cache, without, tenant) -> tuple[float, float]:
    """Return by how much the median and the 99th percentile of requests differ."""
    with_ms, without_ms = [], []
    for number in range(300):
        began = time.thread_time()
        answer = await cache.answer(ask(tenant, number))
        middle = time.thread_time()
        await without.answer(ask(tenant, number))
        with_ms.append((middle - began) * 1000)
        without_ms.append((time.thread_time() - middle) * 1000)
        assert answer.status.reason == "store_breaker_open"
    theirs, ours = (statistics.quantiles(taken, n=100) for taken in (without_ms, with_ms))
    return ours[49] - theirs[49], ours[98] - theirs[98]


async def test_a_commit_whose_outcome_nobody_heard_leaves_one_entry_or_none(own, tenant):
    """The connection is cut when the commit is on its way; storing again is storing once."""
    from tests.store_samples import entry, request

    with relayed(own.dsns.app) as (relay, through):
        opened = PostgresStore(through, pool_wait_s=10, lookup_timeout_s=10)
        await opened.open()
        for number in range(5):
            made = entry(request(tenant, question=f"q{number}"))
            begun = await opened.snapshot(made.scope, ())
            relay.cut_at = b"COMMIT"
            with pytest.raises(Exception, match="Postgres"):
                await opened.put(made, begun)
            relay.cut_at = b""
            async with asyncio.timeout(20):
                while True:
                    try:
                        assert await opened.put(made, begun) == ""
                        break
                    except Exception:
                        await asyncio.sleep(0.05)
            found = await opened.find_exact(made.scope, made.keys, now=NOW)
            assert [c.entry.id for c in found] == [made.id]
        assert relay.cuts == 5
        await opened.close()
