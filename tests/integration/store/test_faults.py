"""The database fails: calls end in bounds with one error, and everything works again afterwards."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from ragcache.errors import StoreUnavailableError
from ragcache.store.embedded import EmbeddedPostgres, ensure
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from ragcache.types import Document
from tests.store_samples import NOW, entry, keys, request, scope


async def until_it_answers(store: PostgresStore, tenant: str, within_s: float = 30.0) -> None:
    asked = request(tenant)
    async with asyncio.timeout(within_s):
        while True:
            try:
                await store.find_exact(scope(asked), keys(asked), now=NOW)
            except StoreUnavailableError:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_database_that_is_down_at_start_is_used_once_it_is_back(tenant):
    with tempfile.TemporaryDirectory(prefix="rc-down-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        running = ensure(Path(folder) / "pg")
        running.server.stop()
        store = PostgresStore(running.dsns.app, open_wait_s=0.3)
        with pytest.raises(StoreUnavailableError):
            await store.open()
        asked = request(tenant)
        with pytest.raises(StoreUnavailableError):
            await store.find_exact(scope(asked), keys(asked), now=NOW)
        with EmbeddedPostgres(Path(folder) / "pg"):
            await until_it_answers(store, tenant)
            made = entry(asked)
            assert await store.put(made, await store.snapshot(made.scope, ())) == ""
        with pytest.raises(StoreUnavailableError):
            await store.find_exact(scope(asked), keys(asked), now=NOW)
        with EmbeddedPostgres(Path(folder) / "pg"):
            await until_it_answers(store, tenant)
            assert await store.find_exact(scope(asked), keys(asked), now=NOW)
        await store.close()


async def test_connections_broken_under_load_lose_no_call_and_leave_no_half_entry(
    postgres: Dsns, tenant
):
    store = PostgresStore(postgres.app, pool_size=4, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    documents = tuple(Document(text=f"t{n}", source=f"s{n}") for n in range(4))
    outcomes: list[str] = []
    stop = asyncio.Event()

    async def work(seed: int):
        dice = random.Random(seed)
        while not stop.is_set():
            asked = request(tenant, question=f"q{dice.randrange(1000)}", documents=documents)
            made = entry(asked)
            try:
                await store.put(made, await store.snapshot(made.scope, documents))
                await store.find_exact(made.scope, made.keys, now=NOW)
                outcomes.append("done")
            except StoreUnavailableError:
                outcomes.append("unavailable")

    workers = [asyncio.create_task(work(n)) for n in range(6)]
    with psycopg.connect(postgres.admin, autocommit=True) as connection:
        for _ in range(20):
            await asyncio.sleep(0.15)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
                " current_database() AND usename = 'ragcache_app' ORDER BY random() LIMIT 1"
            )
    stop.set()
    await asyncio.gather(*workers)
    await until_it_answers(store, tenant)
    assert outcomes.count("done") >= 5
    assert "unavailable" in outcomes, "nothing was broken off in the middle"
    with psycopg.connect(postgres.ops) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        half = connection.execute(
            "SELECT count(*) FROM ragcache.entry e WHERE (SELECT count(*) FROM ragcache.lineage l"
            " WHERE l.tenant = e.tenant AND l.entry = e.id) <> 4"
        ).fetchone()
    assert half == (0,)
    await store.close()


async def test_waiting_for_a_connection_is_bounded(postgres: Dsns, tenant):
    store = PostgresStore(postgres.app, pool_size=2, pool_wait_s=0.05, lookup_timeout_s=10)
    await store.open()
    await until_it_answers(store, tenant)
    asked = request(tenant)
    async with store._pool.connection(timeout=10), store._pool.connection(timeout=10):
        before = time.monotonic()
        calls = [store.find_exact(scope(asked), keys(asked), now=NOW) for _ in range(40)]
        errors = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(error) for error in errors} == {StoreUnavailableError}
        assert time.monotonic() - before < 3.0
    await until_it_answers(store, tenant)
    await store.close()


async def test_a_statement_that_takes_too_long_is_given_up_by_the_server(postgres: Dsns, tenant):
    store = PostgresStore(postgres.app, pool_wait_s=10, lookup_timeout_s=10, write_timeout_s=0.2)
    await store.open()
    made = entry(request(tenant))
    begun = await store.snapshot(made.scope, ())
    with psycopg.connect(postgres.app) as holder:
        holder.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        holder.execute("UPDATE ragcache.namespace SET epoch = epoch WHERE tenant = %s", (tenant,))
        with pytest.raises(StoreUnavailableError, match="statement timeout"):
            await store.put(made, begun)
    assert await store.put(made, begun) == ""
    await store.close()


async def test_calls_cancelled_anywhere_lose_no_connection(postgres: Dsns, tenant):
    store = PostgresStore(postgres.app, pool_size=2, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    dice = random.Random(9)
    for n in range(120):
        made = entry(request(tenant, question=f"q{n % 5}"))

        async def both(made=made):
            await store.put(made, await store.snapshot(made.scope, ()))
            return await store.find_exact(made.scope, made.keys, now=NOW)

        task = asyncio.create_task(both())
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    asked = request(tenant, question="q1")
    calls = [store.find_exact(scope(asked), keys(asked), now=NOW) for _ in range(8)]
    async with asyncio.timeout(20):
        await asyncio.gather(*calls)
    assert store._pool.get_stats()["pool_size"] <= 2
    await store.close()


@pytest.mark.parametrize("call", ["read", "write"])
async def test_a_caller_cancelled_while_giving_its_connection_back_loses_none(
    postgres: Dsns, tenant, monkeypatch, call
):
    """The pool alone would lose it for good: so small a pool would never serve again."""
    store = PostgresStore(postgres.app, pool_size=1, pool_wait_s=5, lookup_timeout_s=10)
    await store.open()
    made = entry(request(tenant))
    begun = await store.snapshot(made.scope, ())
    returning, go_on = asyncio.Event(), asyncio.Event()
    add = store._pool._add_to_pool

    async def slowly(connection):
        returning.set()
        await go_on.wait()
        await add(connection)

    monkeypatch.setattr(store._pool, "_add_to_pool", slowly)
    work = (
        store.find_exact(made.scope, made.keys, now=NOW)
        if call == "read"
        else store.put(made, begun)
    )
    task = asyncio.create_task(work)
    await returning.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await store.find_exact(made.scope, made.keys, now=NOW)
    stats = store._pool.get_stats()
    assert stats["pool_available"] == stats["pool_size"] == 1
    await store.close()
