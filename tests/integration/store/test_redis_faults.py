"""Redis fails: calls end in bounds with one error, and everything works again afterwards."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import suppress

import pytest

from ragcache.errors import StoreError, StoreUnavailableError
from ragcache.store.redis import places
from ragcache.store.redis.store import RedisStore
from ragcache.types import Document, TenantId
from tests.fixtures_redis import RedisServer, free_port, redis_running
from tests.store_samples import NOW, entry, keys, request, scope, served, stored


def patient(server: RedisServer, **options) -> RedisStore:
    return RedisStore(server.dsn, **{"pool_wait_s": 10.0, "lookup_timeout_s": 10.0, **options})


@pytest.fixture
def server():
    """A server of the test's own, to break."""
    with redis_running("bare") as started:
        yield started


async def until_it_answers(store: RedisStore, tenant: str, within_s: float = 20.0) -> None:
    asked = request(tenant)
    async with asyncio.timeout(within_s):
        while True:
            try:
                await store.find_exact(scope(asked), keys(asked), now=NOW)
            except StoreUnavailableError:
                await asyncio.sleep(0.02)
            else:
                return


async def test_a_server_that_is_down_at_start_is_used_once_it_is_back(server, tenant):
    server.stop()
    store = RedisStore(server.dsn)
    with pytest.raises(StoreUnavailableError):
        await store.open()
    asked = request(tenant)
    with pytest.raises(StoreUnavailableError):
        await store.find_exact(scope(asked), keys(asked), now=NOW)
    server.start()
    await until_it_answers(store, tenant)
    await stored(store, asked)
    server.stop(signal.SIGKILL)
    with pytest.raises(StoreUnavailableError):
        await served(store, asked)
    server.start()
    await until_it_answers(store, tenant)
    await stored(store, asked)
    assert await served(store, asked)
    await store.close()


async def test_a_server_that_says_nothing_is_waited_for_in_bounds(server, tenant):
    store = RedisStore(server.dsn, pool_size=4, lookup_timeout_s=0.05, write_timeout_s=0.2)
    await store.open()
    made = await stored(store, request(tenant))
    begun = await store.snapshot(made.scope, ())
    server.freeze()
    before = time.monotonic()
    calls = [store.find_exact(made.scope, made.keys, now=NOW) for _ in range(20)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailableError}
    with pytest.raises(StoreUnavailableError):
        await store.put(made, begun)
    async with store.alone(made.scope, "turn") as leading:
        assert leading, "where the server cannot be asked everybody goes ahead"
    assert time.monotonic() - before < 3.0
    server.thaw()
    await until_it_answers(store, tenant)
    assert await served(store, request(tenant)) == [made.id]
    await store.close()


async def test_a_call_that_gets_its_connection_at_the_last_moment_is_bounded_all_the_same(
    server, tenant
):
    """Waiting for a connection takes about as long as the call may take at all."""
    store = RedisStore(server.dsn, pool_size=4, pool_wait_s=0.05, lookup_timeout_s=0.05)
    await store.open()
    asked = scope(request(tenant)), keys(request(tenant))
    for _ in range(12):
        server.freeze()
        before = time.monotonic()
        calls = [store.find_exact(*asked, now=NOW) for _ in range(20)]
        await asyncio.gather(*calls, return_exceptions=True)
        took = time.monotonic() - before
        server.thaw()
        assert took < 3.0
        await until_it_answers(store, tenant)
    await store.close()


async def test_waiting_for_a_connection_is_bounded(server, tenant):
    store = RedisStore(server.dsn, pool_size=1, pool_wait_s=0.05, lookup_timeout_s=10)
    await store.open()
    asked = request(tenant)
    pool = store._link._client.connection_pool
    taken = await pool.get_connection()
    with pytest.raises(StoreUnavailableError, match="onnection"):
        await served(store, asked)
    await pool.release(taken)
    assert await served(store, asked) == []
    await store.close()


async def test_connections_broken_under_load_lose_no_call_and_no_entry(server, tenant):
    store = patient(server, pool_size=4)
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
                assert made.id in await served(store, asked) or outcomes.append("replaced") is None
                outcomes.append("done")
            except StoreUnavailableError:
                outcomes.append("unavailable")

    workers = [asyncio.create_task(work(n)) for n in range(6)]
    with server.client() as client:
        for _ in range(40):
            await asyncio.sleep(0.03)
            client.execute_command("CLIENT KILL", "TYPE", "NORMAL", "SKIPME", "YES")
    stop.set()
    await asyncio.gather(*workers)
    await until_it_answers(store, tenant)
    assert outcomes.count("done") >= 5
    await store.close()


async def test_calls_cancelled_anywhere_get_nobody_elses_answer(server, tenant):
    store = patient(server, pool_size=2)
    await store.open()
    dice = random.Random(9)
    asked = [request(tenant, question=f"q{n}") for n in range(5)]
    made = [await stored(store, one) for one in asked]
    for _ in range(300):
        task = asyncio.create_task(served(store, dice.choice(asked)))
        for _ in range(dice.randrange(12)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        which = dice.randrange(5)
        assert await served(store, asked[which]) == [made[which].id]
    await store.close()


async def test_a_full_server_serves_and_invalidates_but_stores_nothing(server, tenant):
    store = patient(server)
    await store.open()
    asked = request(tenant, documents=(Document(text="d", source="s"),))
    await stored(store, asked)
    other = request(tenant, question="other")
    begun = await store.snapshot(scope(other), ())
    with server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailableError):
            await store.put(entry(other), begun)
        assert await served(store, asked)
        assert await store.change(tenant, ["s"]) == 1
        assert not await served(store, asked)
        client.config_set("maxmemory", 0)
    assert await store.put(entry(other), begun) == ""
    await store.close()


@pytest.mark.parametrize(
    ("policy", "at_least"),
    [("volatile-ttl", 50), ("allkeys-lfu", 50), ("allkeys-lru", 1), ("allkeys-random", 0)],
)
async def test_under_eviction_what_is_gone_is_a_miss_and_nothing_stale_is_served(
    server, tenant, policy, at_least
):
    """Keys vanish in any order while documents change: what is served is current all the same.

    How much is found depends on whether the tenant's clock vanishes. By time to live it goes last,
    by frequency hardly ever; by last use it goes as easily as all that was used within the same
    second, which here is everything.
    """
    store = patient(server)
    await store.open()
    with server.client() as client:
        used = client.info("memory")["used_memory"]
        client.config_set("maxmemory-policy", policy)
        client.config_set("maxmemory", used + 1_500_000)
        dice, answers, found = random.Random(4), {}, 0
        for step in range(800):
            which = dice.randrange(150)
            document = Document(text=f"d{which}", source=f"s{which}")
            asked = request(tenant, question=f"q{which}", documents=(document,))
            if dice.random() < 0.1:
                await store.change(tenant, [f"s{which}"])
                answers[which] = None
            elif dice.random() < 0.5:
                made = entry(asked, answer={"text": "x" * 20_000, "step": step})
                with suppress(StoreUnavailableError):  # no room was found just now
                    if await store.put(made, await store.snapshot(made.scope, (document,))) == "":
                        answers[which] = made.id
            else:
                seen = await served(store, asked)
                found += len(seen)
                assert seen in ([], [answers.get(which)])
        assert client.info("stats")["evicted_keys"] > 100
        assert found >= at_least
    await store.close()


async def test_a_replica_is_never_asked_and_after_a_failover_nothing_old_is_served(server, tenant):
    asked = request(tenant, documents=(Document(text="d", source="s"),))
    with redis_running("bare") as second:
        store, other = patient(server), patient(second)
        await store.open()
        await stored(store, asked)
        port = free_port()
        with server.client() as client:
            client.config_set("bind", "127.0.0.1")
            client.config_set("port", port)
        with second.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", port)
            await until(lambda: client.exists(f"{places.prefix(tenant)}clock"))
            with pytest.raises(StoreUnavailableError, match="replica"):
                await other.open()
            await as_if_checked(other)
            with pytest.raises(StoreUnavailableError, match=r"read.?only"):
                await served(other, asked)
            client.execute_command("REPLICAOF", "NO", "ONE")
        assert await served(store, asked)
        assert not await served(other, asked), "the last invalidations may not have come over"
        await stored(other, asked)
        assert await served(other, asked)
        with server.client() as client:  # the name now leads to the old primary, as a replica
            client.execute_command("REPLICAOF", "127.0.0.1", port + 1)
        with pytest.raises(StoreUnavailableError):
            await store.change(tenant, ["s"])
        await store.close()
        await other.close()


async def as_if_checked(store: RedisStore) -> None:
    """A server that was a primary when it was looked at."""
    from ragcache.store.redis.server import Server

    store._server = Server(name="Valkey", vectors="", detail="")


async def until(holds) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.02)


async def test_without_its_replicas_a_primary_serves_nothing_where_it_is_told_so(server, tenant):
    """A primary that the network has cut off must not go on serving what others invalidate."""
    store = patient(server)
    await store.open()
    asked = request(tenant)
    await stored(store, asked)
    with server.client() as client:
        client.config_set("min-replicas-to-write", 1)
        with pytest.raises(StoreUnavailableError, match="NOREPLICAS"):
            await served(store, asked)
        client.config_set("min-replicas-to-write", 0)
    assert await served(store, asked)
    await store.close()


# --- turns --------------------------------------------------------------------------------------


async def test_a_turn_is_kept_while_its_holder_lives_and_free_soon_after_it_died(server, tenant):
    one, other = patient(server), patient(server)
    await one.open()
    await other.open()
    one._turns._lease_s = 0.6
    place = scope(request(tenant))
    async with one.alone(place, "key") as leading:
        assert leading
        await asyncio.sleep(1.5)
        async with other.alone(place, "key") as following:
            assert not following, "the turn ran out while its holder was alive"
        for _, keeping in one._turns._held.values():
            keeping.cancel()  # what a killed process does
        async with asyncio.timeout(10):
            while True:
                async with other.alone(place, "key") as free:
                    if free:
                        break
                await asyncio.sleep(0.05)
    await one.close()
    await other.close()


async def test_whoever_comes_late_gives_back_only_what_is_his(server, tenant):
    one, other = patient(server), patient(server)
    place = scope(request(tenant))
    async with one.alone(place, "key"):
        with server.client() as client:  # the turn ran out, and another process has it now
            client.delete(*client.keys(f"{places.prefix(tenant)}l:*"))
        async with other.alone(place, "key") as leading:
            assert leading
            turn = next(iter(one._turns._held))
            token, keeping = one._turns._held[turn]
            keeping.cancel()
            await one._link.ask("give", [turn], token, timeout_s=5)
            async with one.alone(place, "key") as third:
                assert not third
    await one.close()
    await other.close()


# --- rights -------------------------------------------------------------------------------------

#: The example of docs/redis.md: one tenant, and nothing else.
COMMANDS = (
    "+eval +evalsha +info +command|list +ping +client|setinfo +hello +select"
    " +hmget +hget +hset +hincrby +zadd +zrem +zcard +zscore +zrange +zrangebyscore +zrevrange"
    " +zpopmin +zremrangebyscore +sadd +srem +smembers +exists +pexpire +pttl +unlink +del +rename"
    " +get +set +xadd +publish +time +psubscribe"
)


async def test_a_user_who_may_reach_one_tenant_reaches_no_other(server, tenant):
    other = TenantId(f"{tenant}-b")
    full = patient(server)
    await full.open()
    theirs = await stored(full, request(other))
    with server.client() as client:
        client.execute_command(
            *("ACL", "SETUSER", "one", "on", ">secret", "resetkeys", "resetchannels"),
            *(f"~{places.prefix(tenant)}*", f"&{places.prefix(tenant)}*", *COMMANDS.split()),
        )
    kept = RedisStore(server.dsn.replace("unix://", "unix://one:secret@"), lookup_timeout_s=10)
    await kept.open()
    asked = request(tenant, documents=(Document(text="d", source="s"),))
    made = await stored(kept, asked)
    assert await served(kept, asked)
    await kept.touch(made.scope, made.id, now=NOW)
    assert await kept.change(tenant, ["s"]) == 1
    await kept.bump_epoch(tenant, "default")
    async with kept.alone(made.scope, "key") as leading:
        assert leading
    await kept.quarantine(made.scope, made.id, reason="x")
    assert await kept.purge(tenant) == 1
    for work in (
        kept.find_exact(theirs.scope, theirs.keys, now=NOW),
        kept.purge(other),
        kept.change(other, ["s"]),
        kept.snapshot(theirs.scope, ()),
    ):
        with pytest.raises(StoreError, match="refused this user"):
            await work
    await kept.close()
    assert await served(full, request(other)) == [theirs.id]
    await full.close()


async def test_a_wrong_password_and_a_missing_right_are_named(server):
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "poor", "on", ">secret", "~*", "+ping")
    for login in ("poor:wrong", "poor:secret"):
        store = RedisStore(server.dsn.replace("unix://", f"unix://{login}@"))
        with pytest.raises(StoreError, match=r"docs/redis\.md") as refused:
            await store.open()
        assert not isinstance(refused.value, StoreUnavailableError)
        await store.close()
