"""A real cluster of three nodes: a tenant's keys are in one slot, tenants are spread over nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ragcache.errors import StoreError
from ragcache.store.redis import places
from ragcache.store.redis.copies import RedisCopies
from ragcache.store.redis.store import RedisStore
from ragcache.types import Document, TenantId
from tests.fixtures_redis import RedisServer, free_port, redis_running
from tests.store_samples import NOW, request, scope, served, stored

SLOTS = 16_384
NODES = 3
DOCUMENT = Document(text="d", source="s")


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[RedisServer]]:
    """Three primaries with vector sets, each with a third of the slots."""
    with ExitStack() as stack:
        running = []
        for _ in range(NODES):
            options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
            port = free_port()
            running.append(stack.enter_context(redis_running("sets", *options, port=port)))
        join(running)
        yield running


def join(nodes: list[RedisServer]) -> None:
    """Share the slots out and make the nodes known to each other."""
    for at, node in enumerate(nodes):
        first, last = SLOTS * at // NODES, SLOTS * (at + 1) // NODES - 1
        bus = node.options[node.options.index("--cluster-port") + 1]
        with node.client() as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", at + 1)
        with nodes[0].client() as client:
            if at:
                client.execute_command("CLUSTER MEET", "127.0.0.1", node.port, bus)


async def opened(nodes: list[RedisServer], kind: type[RedisStore] = RedisStore) -> RedisStore:
    store = kind(nodes[0].dsn, cluster=True, pool_wait_s=10, lookup_timeout_s=10)
    async with asyncio.timeout(30):
        while not all(whole(node) for node in nodes):
            await asyncio.sleep(0.05)
    await store.open()
    return store


def whole(node: RedisServer) -> bool:
    with node.client() as client:
        info = client.execute_command("CLUSTER INFO")
    return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(NODES)


async def test_tenants_are_spread_over_nodes_and_each_lies_on_one(nodes, tenant):
    store = await opened(nodes)
    assert store.has_vectors
    tenants = [TenantId(f"{tenant}-{n}") for n in range(12)]
    for one in tenants:
        asked = request(one, documents=(DOCUMENT,))
        made = await stored(store, asked)
        assert await served(store, asked) == [made.id]
        assert await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)
        async with store.alone(scope(asked), "turn") as leading:
            assert leading
    homes = {one: [at for at in range(NODES) if holds(nodes[at], one)] for one in tenants}
    assert all(len(home) == 1 for home in homes.values())
    assert len({at for (at,) in homes.values()}) == NODES
    for one in tenants:
        asked = request(one, documents=(DOCUMENT,))
        assert await store.change(one, ["s"]) == 1
        assert not await served(store, asked)
        assert await store.purge(one) == 1
    await store.close()


def holds(node: RedisServer, tenant: str) -> bool:
    with node.client() as client:
        return bool(client.keys(f"{places.prefix(tenant)}*"))


async def test_copies_of_all_nodes_are_forgotten(nodes, tenant):
    store = await opened(nodes, RedisCopies)
    asked = [request(TenantId(f"{tenant}-{n}")) for n in range(12)]
    for one in asked:
        await stored(store, one)
    await store.forget()
    for one in asked:
        assert not await served(store, one)
    await store.close()


async def test_a_cluster_that_was_not_said_to_be_one_is_refused(nodes):
    for dsn, cluster in ((nodes[0].dsn, False), (nodes[0].dsn, True)):
        store = RedisStore(dsn, cluster=cluster, lookup_timeout_s=10)
        if cluster:
            await store.open()
        else:
            with pytest.raises(StoreError, match="redis_cluster = true"):
                await store.open()
        await store.close()
