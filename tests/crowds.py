"""Large tenants among many: their entries, what is asked of them, and what it costs."""

from __future__ import annotations

import base64
import itertools
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np
import psycopg
from pgvector.psycopg import register_vector

from ragcache.store.maintenance import maintain
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from ragcache.types import TenantId
from tests.store_samples import NOW, keys, request, scope

DIMENSIONS = 384
#: As large as answers and what was understood of their questions are in earnest.
_ANSWER = json.dumps({"text": "An answer of some length. " * 30})
_READING = json.dumps({"vectors": base64.b64encode(bytes(range(256)) * 12).decode()})


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


def copy(dsns: Dsns, tenant: str, made: np.ndarray, *, halfvec: bool = False) -> None:
    """Fill a tenant's tables, past the policies, as quickly as it can be done."""
    with psycopg.connect(dsns.admin) as connection:
        register_vector(connection)
        _copy_entries(connection, tenant, made, "embedding_half" if halfvec else "embedding")
        _copy_lineage(connection, tenant, len(made))
        connection.execute(
            "INSERT INTO ragcache.namespace VALUES (%s, 'default') ON CONFLICT DO NOTHING",
            (tenant,),
        )


def _copy_entries(connection, tenant: str, made: np.ndarray, column: str) -> None:
    template = request(tenant)
    place, found = scope(template), keys(template)
    columns = (
        "tenant, id, principal, sharing, namespace, partition, exact_key, normal_key, question,"
        f" answer, reading, state, created_at, expire_at, changed_at, epoch, embedder, {column}"
    )
    kind = "vector" if column == "embedding" else "halfvec"
    with connection.cursor().copy(
        f"COPY ragcache.entry ({columns}) FROM STDIN WITH (FORMAT BINARY)"
    ) as rows:
        rows.set_types(
            ["text"] * 9 + ["json", "json", "text"] + ["timestamptz"] * 3 + ["int8", "text", kind]
        )
        for n, vector in enumerate(made):
            key = found.exact if n == 0 else f"{tenant}-{n}"
            rows.write_row(
                (
                    *(tenant, f"{tenant}-{n}", place.principal, place.group),
                    *(place.namespace, place.partition, key, key, f"question {n}"),
                    *(_ANSWER, _READING, "live", NOW, NOW.replace(year=2033), NOW, 0, "E"),
                    vector if kind == "vector" else _half(vector),
                )
            )


def _half(vector: np.ndarray):
    from pgvector import HalfVector

    return HalfVector(vector)


def _copy_lineage(connection, tenant: str, count: int) -> None:
    """Each entry came from two of the tenant's documents."""
    lines = (
        "COPY ragcache.lineage (tenant, entry, position, names, content, raw, rank, cited)"
        " FROM STDIN"
    )
    with connection.cursor().copy(lines) as rows:
        for n in range(count):
            for place in (0, 1):
                name = f"s{n % 500 + place}"
                rows.write_row(
                    (tenant, f"{tenant}-{n}", place, [name], "c" * 64, "r" * 64, place, True)
                )
    names = "COPY ragcache.lineage_name (tenant, entry, name, number) FROM STDIN"
    with connection.cursor().copy(names) as rows:
        for n in range(count):
            for place in (0, 1):
                rows.write_row((tenant, f"{tenant}-{n}", f"s{n % 500 + place}", 0))
    documents = "COPY ragcache.document (tenant, name) FROM STDIN"
    with connection.cursor().copy(documents) as rows:
        for n in range(min(count, 500) + 1):
            rows.write_row((tenant, f"s{n}"))


async def crowded(
    dsns: Dsns, crowd: Crowd, *, halfvec: bool = False
) -> tuple[PostgresStore, np.ndarray, np.ndarray]:
    """Return a store over so many entries, and the vectors of the large and small tenant."""
    large, small = vectors(crowd.large, 1), vectors(crowd.small, 2)
    copy(dsns, "large", large, halfvec=halfvec)
    copy(dsns, "small", small, halfvec=halfvec)
    for n in range(crowd.others // 1000 or 1):
        others = vectors(min(1000, crowd.others), 100 + n)
        copy(dsns, f"other-{n}", others, halfvec=halfvec)
    with psycopg.connect(dsns.admin, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    built = maintain(dsns.ops, now=NOW, index_at=crowd.index_at).built
    assert len(built) == 1, "the large tenant, and nobody else, has an index of its own"
    store = PostgresStore(dsns.app, pool_wait_s=10, lookup_timeout_s=10, halfvec=halfvec)
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


_SIZES = """
SELECT
  (SELECT sum(coalesce(pg_column_size(embedding), pg_column_size(embedding_half)))
   FROM ragcache.entry),
  (SELECT sum(pg_relation_size(indexrelid)) FROM pg_stat_user_indexes
   WHERE indexrelname LIKE 'entry_near_%'),
  pg_total_relation_size('ragcache.entry')
"""


def sizes(dsns: Dsns) -> dict[str, int]:
    """Return the bytes of all vectors, of their graphs, and of the entries with all they need."""
    with psycopg.connect(dsns.admin) as connection:
        row = connection.execute(_SIZES).fetchone()
    return dict(zip(("vectors", "graph", "entries"), map(int, row), strict=True))


async def p50_ms(calls: dict[str, Callable[[], Awaitable[object]]], count: int) -> dict[str, float]:
    """Return the median of each call, taken in turns so that all see the same machine."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(count):
        for name, call in calls.items():
            start = time.perf_counter()
            await call()
            taken[name].append((time.perf_counter() - start) * 1000)
    return {name: statistics.median(times) for name, times in taken.items()}


def bare(store: PostgresStore, tenant: str) -> Callable[[], Awaitable[None]]:
    """Return the least that a transaction inside a tenant can be, on the store's own pool."""

    async def transaction() -> None:
        async with store._pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
            await (await connection.execute("SELECT 1")).fetchall()

    return transaction


def searching(
    store: PostgresStore, tenant: str, some: np.ndarray
) -> Callable[[], Awaitable[object]]:
    """Return a search for the nearest of a tenant's entries, with another vector each time."""
    place = scope(request(TenantId(tenant)))
    queries = itertools.cycle(near(some[: min(len(some), 1_000)], 9))
    return lambda: store.find_similar(place, next(queries), embedder="E", now=NOW, limit=5)


async def costs(store: PostgresStore, large: np.ndarray, count: int) -> dict[str, float]:
    """Return the medians of a bare transaction, an exact lookup, and searches."""
    asked = request("large")
    place, found = scope(asked), keys(asked)
    calls = {
        "bare": bare(store, "large"),
        "exact": lambda: store.find_exact(place, found, now=NOW),
        "large": searching(store, "large", large),
        "small": searching(store, "small", large),
    }
    return await p50_ms(calls, count)
