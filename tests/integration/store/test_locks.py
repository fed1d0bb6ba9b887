"""One call among several processes: turns that are taken, given back, and never stuck."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from contextlib import suppress

import psycopg
import pytest

from ragcache.store.locks import Locks, lock_number
from ragcache.store.roles import Dsns
from ragcache.types import TenantId
from tests.store_samples import keys, request, scope

HOLDER = """
import asyncio, sys
from ragcache.store.locks import Locks
from tests.store_samples import request, scope
async def main():
    async with Locks(sys.argv[1], wait_s=20).alone(scope(request(sys.argv[2])), "key") as leading:
        print(leading, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.fixture
async def two(postgres: Dsns):
    """Two processes' locks, as far as the server can tell."""
    one, other = Locks(postgres.app, wait_s=20), Locks(postgres.app, wait_s=20)
    yield one, other
    await one.close()
    await other.close()


async def test_one_leads_and_the_other_follows_until_the_turn_is_free(two, tenant):
    one, other = two
    place = scope(request(tenant))
    async with one.alone(place, "key") as leading:
        assert leading
        async with other.alone(place, "key") as following:
            assert not following
        async with one.alone(place, "key") as again:
            assert not again, "a session's own locks do not exclude each other"
        async with other.alone(place, "other key") as apart:
            assert apart
    async with other.alone(place, "key") as leading:
        assert leading


async def test_tenants_and_principals_never_wait_for_each_other(two, tenant):
    one, other = two
    mine = request(tenant, principal="ann")
    for theirs in (mine.replace(tenant=TenantId(f"{tenant}:x")), mine.replace(principal="bob")):
        async with one.alone(scope(mine), "key"), other.alone(scope(theirs), "key") as leading:
            assert leading
        assert keys(mine) != keys(theirs)
        assert lock_number(scope(mine), "key") != lock_number(scope(theirs), "key")


async def test_a_process_that_is_killed_gives_its_turn_back(two, postgres: Dsns, tenant):
    one, _ = two
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, postgres.app, tenant], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "True\n"
    place = scope(request(tenant))
    async with one.alone(place, "key") as leading:
        assert not leading
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    async with asyncio.timeout(20):
        while True:
            async with one.alone(place, "key") as leading:
                if leading:
                    break
            await asyncio.sleep(0.05)


async def test_whoever_is_cancelled_leaves_no_lock_behind(two, tenant):
    one, other = two
    place = scope(request(tenant))

    async def hold():
        async with one.alone(place, "key"):
            await asyncio.sleep(60)

    for ticks in range(0, 40, 3):
        task = asyncio.create_task(hold())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    async with asyncio.timeout(20):
        while one._tasks or one._held:
            await asyncio.sleep(0.01)
    async with other.alone(place, "key") as leading:
        assert leading


async def test_a_lost_connection_frees_its_locks_and_is_replaced(two, postgres: Dsns, tenant):
    one, other = two
    one._retry_s = 0.0
    place = scope(request(tenant))
    async with one.alone(place, "key"):
        with psycopg.connect(postgres.admin, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(%s)", (one._connection.info.backend_pid,)
            )
        async with other.alone(place, "key") as leading:
            assert leading
    async with one.alone(place, "key") as leading:
        assert leading
    async with one.alone(place, "key"), other.alone(place, "key") as leading:
        assert not leading


async def test_where_the_server_cannot_be_asked_everybody_goes_ahead(tenant):
    away = Locks("host=/nonexistent user=x dbname=x")
    async with away.alone(scope(request(tenant)), "key") as leading:
        assert leading
    await away.close()


async def test_a_server_that_says_nothing_is_waited_for_in_bounds(tenant):
    silent = socket.create_server(("127.0.0.1", 0))  # the kernel accepts, nobody answers
    port = silent.getsockname()[1]
    away = Locks(f"host=127.0.0.1 port={port} user=x dbname=x sslmode=disable", wait_s=0.05)
    loop = asyncio.get_running_loop()
    before = loop.time()
    async with away.alone(scope(request(tenant)), "key") as leading:
        assert leading
    assert loop.time() - before < 1.5, "the wait was not bounded"
    await away.close()
    silent.close()


async def test_through_a_transaction_pooler_nobody_waits(pgbouncer: str, tenant):
    pooled = Locks(pgbouncer, wait_s=20)
    async with (
        pooled.alone(scope(request(tenant)), "key") as one,
        pooled.alone(scope(request(tenant)), "key") as other,
    ):
        assert (one, other) == (True, True)
    await pooled.close()
