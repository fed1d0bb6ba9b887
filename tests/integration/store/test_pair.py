"""Redis in front of Postgres: what Redis is good for, and what it is never believed."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta

import psycopg
import pytest

from ragcache.store import purging
from ragcache.store.pair import PairStore
from ragcache.store.postgres import PostgresStore
from ragcache.store.purging import Selection
from ragcache.store.redis import places
from ragcache.store.redis.copies import RedisCopies
from ragcache.store.roles import Dsns
from ragcache.types import Document, TenantId
from tests.fixtures_redis import RedisServer, redis_running
from tests.store_samples import NOW, keys, request, scope, served, stored

DOCUMENT = Document(text="d", source="s")


def made_pair(server: RedisServer, dsns: Dsns, **front) -> PairStore:
    options = {"pool_wait_s": 10.0, "lookup_timeout_s": 10.0}
    truth = PostgresStore(dsns.app, **options)
    return PairStore(RedisCopies(server.dsn, **{**options, **front}), truth, dsn=dsns.app)


@pytest.fixture
def server():
    with redis_running("bare") as started:
        yield started


@pytest.fixture
async def pair(server, postgres):
    opened = made_pair(server, postgres)
    await opened.open()
    yield opened
    await opened.close()


async def listening(pair: PairStore, tenant: TenantId) -> None:
    """Wait until what Postgres tells arrives in Redis."""
    probe = TenantId(f"{tenant}-probe")
    asked = request(probe)
    async with asyncio.timeout(20):
        while True:
            await stored(pair, asked)
            await pair.truth.bump_epoch(probe, "default")
            await asyncio.sleep(0.05)
            if not await served(pair.front, asked):
                return


def counted(store, monkeypatch, name: str) -> list[str]:
    calls: list[str] = []
    real = getattr(store, name)

    async def noted(*arguments, **options):
        calls.append(name)
        return await real(*arguments, **options)

    monkeypatch.setattr(store, name, noted)
    return calls


async def test_answers_come_from_redis_and_postgres_only_says_that_they_stand(
    pair, tenant, monkeypatch
):
    asked = request(tenant, documents=(DOCUMENT,))
    made = await stored(pair, asked)
    asked_whole = counted(pair.truth, monkeypatch, "find_exact")
    for _ in range(3):
        (found,) = await pair.find_exact(made.scope, made.keys, now=NOW)
        assert found.entry.answer == made.answer
    assert asked_whole == []


async def test_what_another_process_stored_in_postgres_alone_is_copied_when_it_is_found(
    pair, tenant
):
    asked = request(tenant, documents=(DOCUMENT,))
    made = await stored(pair.truth, asked)
    assert await served(pair, asked) == [made.id]
    async with asyncio.timeout(10):
        while not await served(pair.front, asked):
            await asyncio.sleep(0.01)


async def test_an_invalidation_in_postgres_holds_at_once_and_reaches_redis_soon(
    pair, server, postgres: Dsns, tenant
):
    """Made by others: in a transaction of the team's, by an operator, by a process without Redis."""
    other = made_pair(server, postgres)
    await other.open()
    await listening(pair, tenant)
    ways = {
        "trigger": lambda: by_trigger(postgres, tenant),
        "purge": lambda: purging.purge(postgres.ops, Selection(tenant=tenant)),
        "erase": lambda: purging.erase_principal(postgres.ops, tenant, tenant),
    }
    for way, invalidate in ways.items():
        for _ in range(8):
            asked = request(tenant, documents=(DOCUMENT,))
            await stored(pair, asked)
            assert await served(other, asked)
            assert await served(pair.front, asked)
            await asyncio.to_thread(invalidate)
            assert not await served(pair, asked), way
            assert not await served(other, asked), way
            began = time.perf_counter()
            async with asyncio.timeout(10):
                while await served(pair.front, asked):
                    await asyncio.sleep(0.001)
            print(f"{way}: {1000 * (time.perf_counter() - began):.1f} ms until Redis had heard")
    await other.close()


def by_trigger(dsns: Dsns, tenant: str) -> None:
    with psycopg.connect(dsns.admin, autocommit=True) as connection:
        connection.execute("SELECT ragcache.documents_changed(%s, %s)", (tenant, ["s"]))


async def test_a_change_elsewhere_takes_only_its_own_copies_out_of_redis(pair, tenant):
    await listening(pair, tenant)
    one = request(tenant, question="one", documents=(DOCUMENT,))
    two = request(tenant, question="two", documents=(Document(text="e", source="t"),))
    for asked in (one, two):
        await stored(pair, asked)
    await pair.truth.change(tenant, ["s"])
    async with asyncio.timeout(10):
        while await served(pair.front, one):
            await asyncio.sleep(0.005)
    assert await served(pair.front, two)


async def test_what_is_erased_in_postgres_is_gone_from_redis(pair, server, postgres: Dsns, tenant):
    await listening(pair, tenant)
    asked = request(tenant, principal="ann", documents=(DOCUMENT,))
    await stored(pair, asked, answer={"text": "about ann"})
    prefix = places.prefix(tenant)
    with server.client() as client:
        assert client.keys(f"{prefix}e:*")
        purging.erase_principal(postgres.ops, tenant, "ann")
        async with asyncio.timeout(10):
            while client.keys(f"{prefix}e:*") + client.keys(f"{prefix}w:*"):
                await asyncio.sleep(0.01)


async def test_what_was_said_while_nobody_listened_is_made_up_for(
    pair, server, postgres: Dsns, tenant
):
    await listening(pair, tenant)
    asked = request(tenant)
    await stored(pair, asked)
    with psycopg.connect(postgres.admin, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            " AND usename = 'ragcache_app'"
        )
    async with asyncio.timeout(20):
        while await served(pair.front, asked):
            await asyncio.sleep(0.02)
    assert await served(pair, asked), "Postgres has it still"


async def test_a_redis_that_is_away_costs_no_answer(pair, server, tenant):
    asked = request(tenant)
    made = await stored(pair, asked)
    server.stop()
    for _ in range(8):
        assert await served(pair, asked) == [made.id]
    await stored(pair, request(tenant, question="next"))
    assert await pair.change(tenant, ["x"]) == 0
    async with pair.alone(scope(asked), "turn") as leading:
        assert leading
    server.start()
    pair._breaker.succeeded()
    assert await served(pair, asked) == [made.id]
    async with asyncio.timeout(10):
        while not await served(pair.front, asked):
            await served(pair, asked)
            await asyncio.sleep(0.01)


async def test_while_redis_is_away_turns_are_taken_in_postgres(server, postgres, tenant):
    one, other = made_pair(server, postgres), made_pair(server, postgres)
    await one.open()
    await other.open()
    server.stop()
    asked = request(tenant)
    for store in (one, other):
        for _ in range(6):
            await served(store, asked)
    async with one.alone(scope(asked), "turn") as leading:
        assert leading
        async with other.alone(scope(asked), "turn") as following:
            assert not following
    await one.close()
    await other.close()


async def test_a_copy_that_was_altered_takes_nothing_out_of_service_in_postgres(
    pair, server, tenant
):
    asked = request(tenant)
    made = await stored(pair, asked, answer={"text": "right"})
    name = f"{places.prefix(tenant)}e:{made.id}"
    with server.client() as client:
        fields = json.loads(client.hget(name, "body"))
        fields["answer"] = {"text": "wrong"}
        client.hset(name, "body", json.dumps(fields))
    (found,) = await pair.find_exact(made.scope, made.keys, now=NOW)
    assert found.entry.answer == {"text": "wrong"}, "the signature is the pipeline's to verify"
    await pair.quarantine(made.scope, made.id, reason="bad_signature")
    (found,) = await pair.find_exact(made.scope, made.keys, now=NOW)
    assert found.entry.answer == {"text": "right"}
    await pair.quarantine(made.scope, made.id, reason="bad_signature")
    assert not await pair.find_exact(made.scope, made.keys, now=NOW)


async def test_promotion_in_postgres_holds_whatever_redis_keeps(pair, postgres: Dsns, tenant):
    asked = request(tenant, sharing="tenant", principal="ann")
    made = await stored(pair, asked, state="quarantined")
    bob = asked.replace(principal="bob")
    assert await served(pair, asked) == [made.id]
    assert await served(pair, bob) == []
    assert purging.promote(postgres.ops, tenant, made.id)
    for one in (bob, asked):
        (found,) = await pair.find_exact(scope(one), keys(one), now=NOW)
        assert found.entry.state == "live"


async def test_states_are_kept_in_postgres(pair, tenant):
    until = NOW + timedelta(hours=1)
    await pair.remember(tenant, "conversation", "s1", {"a": 1}, now=NOW, expire_at=until)
    assert await pair.truth.recall(tenant, "conversation", "s1", now=NOW) == {"a": 1}
