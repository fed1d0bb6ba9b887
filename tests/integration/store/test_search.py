"""Vector search inside a tenant: as good as looking at every row, at any size, at what cost."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np
import psycopg
import pytest
from pgvector.psycopg import register_vector

from ragcache.store.maintenance import maintain
from ragcache.store.postgres import PostgresStore
from ragcache.store.queries import queries
from ragcache.store.roles import Dsns
from ragcache.types import Document, TenantId
from tests.store_samples import NOW, entry, keys, request, scope, stored

DIMENSIONS = 384


@dataclass(frozen=True)
class Crowd:
    """How many entries a large, a small, and many other tenants have."""

    large: int
    small: int
    others: int
    index_at: int


def vectors(count: int, seed: int) -> np.ndarray:
    """Return unit vectors that lie in clusters, as questions of one trade do."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(max(1, count // 40), DIMENSIONS))
    chosen = centres[random.integers(0, len(centres), count)]
    spread = chosen + random.normal(scale=0.45, size=(count, DIMENSIONS))
    return (spread / np.linalg.norm(spread, axis=1, keepdims=True)).astype(np.float32)


def near(some: np.ndarray, seed: int) -> np.ndarray:
    """Return what is asked: a little beside the vectors."""
    random = np.random.default_rng(seed)
    moved = some + random.normal(scale=0.02, size=some.shape)
    return (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)


def copy(dsns: Dsns, tenant: str, made: np.ndarray) -> None:
    """Fill a tenant's table, past the policies, as quickly as it can be done."""
    template = request(tenant)
    place, found = scope(template), keys(template)
    columns = (
        "tenant, id, principal, sharing, namespace, partition, exact_key, normal_key, question,"
        " answer, state, created_at, expire_at, changed_at, epoch, embedder, embedding"
    )
    answer = '{"text": "' + "An answer of some length. " * 30 + '"}'
    with psycopg.connect(dsns.admin) as connection:
        register_vector(connection)
        with connection.cursor().copy(
            f"COPY ragcache.entry ({columns}) FROM STDIN WITH (FORMAT BINARY)"
        ) as rows:
            rows.set_types(
                ["text"] * 9 + ["json", "text"] + ["timestamptz"] * 3 + ["int8", "text", "vector"]
            )
            for n, vector in enumerate(made):
                key = found.exact if n == 0 else f"{tenant}-{n}"
                rows.write_row(
                    (
                        *(tenant, f"{tenant}-{n}", place.principal, place.group),
                        *(place.namespace, place.partition, key, key, f"question {n}"),
                        *(answer, "live", NOW, NOW.replace(year=2033), NOW, 0, "E", vector),
                    )
                )
        connection.execute(
            "INSERT INTO ragcache.namespace VALUES (%s, 'default') ON CONFLICT DO NOTHING",
            (tenant,),
        )


async def crowded(dsns: Dsns, crowd: Crowd) -> tuple[PostgresStore, np.ndarray, np.ndarray]:
    """Return a store over so many entries, and the vectors of the large and small tenant."""
    large, small = vectors(crowd.large, 1), vectors(crowd.small, 2)
    copy(dsns, "large", large)
    copy(dsns, "small", small)
    for n in range(crowd.others // 1000 or 1):
        copy(dsns, f"other-{n}", vectors(min(1000, crowd.others), 100 + n))
    with psycopg.connect(dsns.admin, autocommit=True) as connection:
        connection.execute("ANALYZE ragcache.entry")
    built = maintain(dsns.ops, now=NOW, index_at=crowd.index_at).built
    assert len(built) == 1, "the large tenant, and nobody else, has an index of its own"
    store = PostgresStore(dsns.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    return store, large, small


async def recall(store: PostgresStore, tenant: str, made: np.ndarray, count: int) -> float:
    """Return how often the nearest entry is the one that looking at all of them finds."""
    random = np.random.default_rng(5)
    asked = near(made[random.integers(0, len(made), count)], 6)
    best = (asked @ made.T).argmax(axis=1)
    place = scope(request(TenantId(tenant)))
    right = 0
    for vector, expected in zip(asked, best, strict=True):
        (found, *_) = await store.find_similar(place, vector, embedder="E", now=NOW, limit=1)
        assert found.entry.scope.tenant == tenant
        right += found.entry.id == f"{tenant}-{expected}"
    return right / count


def walks(dsns: Dsns) -> int:
    """Return how often a vector index was used."""
    with psycopg.connect(dsns.admin) as connection:
        row = connection.execute(
            "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'entry_near_%'"
        ).fetchone()
    return row[0]


async def p50_ms(calls: dict[str, Callable[[], Awaitable[object]]], count: int) -> dict[str, float]:
    """Return the median of each call, taken in turns so that all see the same machine."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(count):
        for name, call in calls.items():
            start = time.perf_counter()
            await call()
            taken[name].append((time.perf_counter() - start) * 1000)
    return {name: statistics.median(times) for name, times in taken.items()}


async def costs(store: PostgresStore, large: np.ndarray, count: int) -> dict[str, float]:
    """Return the medians of a bare transaction, an exact lookup, and searches."""
    asked = request("large")
    place, small = scope(asked), scope(request(TenantId("small")))
    queries = iter(near(large[np.arange(count * 2) % len(large)], 9))

    async def bare():
        async with store._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('ragcache.tenant', %s, true)", ("large",))
            await (await connection.execute("SELECT 1")).fetchall()

    async def similar(where):
        await store.find_similar(where, next(queries), embedder="E", now=NOW, limit=5)

    return await p50_ms(
        {
            "bare": bare,
            "exact": lambda: store.find_exact(place, keys(asked), now=NOW),
            "large": lambda: similar(place),
            "small": lambda: similar(small),
        },
        count,
    )


@pytest.mark.timeout(300)
async def test_search_is_as_good_as_looking_at_every_row(fresh_database: Dsns):
    crowd = Crowd(large=2_500, small=50, others=2_000, index_at=2_000)
    store, large, small = await crowded(fresh_database, crowd)
    assert await recall(store, "small", small, 50) == 1.0
    assert await recall(store, "large", large, 100) >= 0.99
    await store.close()  # the server counts what a connection did when it ends
    assert walks(fresh_database) >= 50, "the graph was not walked"


def kept_plan(dsns: Dsns, name: str) -> str:
    """Return the plan that a connection keeps of a statement of a lookup, for whatever values."""
    numbers: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        return f"${numbers.setdefault(found[1], len(numbers) + 1)}"

    text = re.sub(r"%\((\w+)\)[sb]", numbered, queries("lookup")[name])
    with psycopg.connect(dsns.app) as connection:
        rows = connection.execute(b"EXPLAIN (GENERIC_PLAN) " + text.encode()).fetchall()
    return "\n".join(line for (line,) in rows)


async def test_a_plan_kept_from_when_there_was_little_reads_no_whole_partition(
    fresh_database: Dsns,
):
    """While tables are small it costs little to read a tenant's rows; later it costs all."""
    store = PostgresStore(fresh_database.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    for tenant in ("a", "b", "c"):
        for n in range(4):
            documents = (Document(text=f"d{n}", source=f"s{n}"), Document(text="all", source="s"))
            await stored(store, request(TenantId(tenant), question=f"q{n}", documents=documents))
    await store.close()
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("ANALYZE")
    exact, entries = (kept_plan(fresh_database, name) for name in ("find_exact", "find_entries"))
    for plan in (exact, entries):
        assert re.search(r"lineage_name l_?\d?\b.*\n.*Cond: .*\(entry = ", plan), plan
        assert re.search(r"document d\b.*\n.*Cond: .*\(name = l_?\d?.name\)", plan), plan
    assert re.search(r"entry e_1\b.*\n.*Cond: .*\(exact_key = ", exact), exact
    assert re.search(r"entry e_2\b.*\n.*Cond: .*\(normal_key = ", exact), exact
    assert re.search(r"entry e\b.*\n.*Cond: .*\(id = ANY", entries), entries


@pytest.mark.timeout(300)
async def test_an_exact_lookup_costs_little_more_than_a_bare_transaction(
    postgres: Dsns, store, tenant
):
    asked = request(tenant)
    made = entry(asked)
    assert await store.put(made, await store.snapshot(made.scope, ())) == ""

    async def bare():
        async with store._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
            await (await connection.execute("SELECT 1")).fetchall()

    calls = {"bare": bare, "exact": lambda: store.find_exact(made.scope, made.keys, now=NOW)}
    await p50_ms(calls, 30)
    taken = await p50_ms(calls, 200)
    assert taken["exact"] <= taken["bare"] * 2.5, taken


@pytest.mark.prove
@pytest.mark.timeout(1800)
async def test_fifty_among_a_hundred_thousand_and_fifty_thousand(
    fresh_database: Dsns, record_property
):
    crowd = Crowd(large=50_000, small=50, others=50_000, index_at=5_000)
    store, large, small = await crowded(fresh_database, crowd)
    found = {
        "small": await recall(store, "small", small, 150),
        "large": await recall(store, "large", large, 500),
    }
    print(found)
    await costs(store, large, 30)
    taken = await costs(store, large, 200)
    for name, value in (found | taken).items():
        record_property(name, value)
    print(taken)
    assert found["small"] == 1.0
    assert found["large"] >= 0.99
    assert taken["exact"] <= taken["bare"] * 1.5
    assert taken["large"] <= taken["exact"] + 3.0
    await store.close()
