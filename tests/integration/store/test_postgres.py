"""The answer store over a real Postgres: what is found, what is kept, what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import numpy as np
import psycopg
import pytest

from ragcache.errors import (
    IsolationError,
    MigrationError,
    StoreError,
    StoreUnavailableError,
    VectorError,
)
from ragcache.protocols import Snapshot
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from ragcache.types import Document, TenantId
from tests.store_samples import NOW, entry, keys, request, scope, stored, unit


async def test_an_expired_entry_comes_last_and_still_says_so(store, tenant):
    asked = request(tenant)
    made = await stored(store, asked, ttl_s=60)
    (found,) = await store.find_exact(made.scope, made.keys, now=NOW + timedelta(seconds=60))
    assert found.entry.expire_at == NOW + timedelta(seconds=60)
    assert not await store.find_similar(
        made.scope, made.vector, embedder="E", now=NOW + timedelta(seconds=60), limit=3
    )
    assert await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=3)


async def test_a_hit_never_extends_a_lifetime(store, tenant, postgres):
    made = await stored(store, request(tenant))
    for second in range(5):
        await store.touch(made.scope, made.id, now=NOW + timedelta(seconds=second))
    (found,) = await store.find_exact(made.scope, made.keys, now=NOW)
    assert found.entry.expire_at == made.expire_at
    with psycopg.connect(postgres.app) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        row = connection.execute("SELECT hits, last_hit_at FROM ragcache.entry_use").fetchone()
    assert row == (5, NOW + timedelta(seconds=4))


async def test_a_hit_on_an_entry_that_is_just_being_removed_is_not_noted(store, tenant, postgres):
    made = await stored(store, request(tenant))
    async with await psycopg.AsyncConnection.connect(postgres.admin) as removing:
        await removing.execute("DELETE FROM ragcache.entry WHERE tenant = %s", (tenant,))
        noting = asyncio.create_task(store.touch(made.scope, made.id, now=NOW))
        await asyncio.sleep(0.1)
        assert not noting.done(), "control: it waits for the removal"
        await removing.commit()
        await noting
    with psycopg.connect(postgres.admin) as connection:
        row = connection.execute(
            "SELECT count(*) FROM ragcache.entry_use WHERE tenant = %s", (tenant,)
        ).fetchone()
    assert row == (0,)


@pytest.mark.parametrize(
    "vector", [np.zeros(8), np.full(8, np.nan), np.full(8, np.inf), np.ones(7)]
)
async def test_unsound_vectors_are_refused_before_sql(store, tenant, vector):
    made = await stored(store, request(tenant))
    await store._pool.close()  # whatever is refused now was refused without SQL
    with pytest.raises(VectorError):
        await store.find_similar(made.scope, vector, embedder="E", now=NOW, limit=1)
    with pytest.raises(VectorError):
        await store.put(replace(made, vector=vector), Snapshot(epoch=0))


async def test_texts_that_postgres_cannot_hold_are_refused_or_replaced(store, tenant):
    assert (
        await store.put(entry(request(tenant, question="a\0b")), Snapshot(epoch=0)) == "unstorable"
    )
    odd = request(tenant, documents=(Document(text="x", source="s\0" + "long" * 2000),))
    made = await stored(store, odd)
    assert await store.change(tenant, [odd.documents[0].source]) == 1
    (found,) = await store.find_exact(made.scope, made.keys, now=NOW)
    assert not found.current


@pytest.mark.parametrize("halfvec", [False, True])
async def test_half_precision_finds_the_same_neighbour(postgres: Dsns, tenant, halfvec):
    store = PostgresStore(postgres.app, pool_wait_s=10, lookup_timeout_s=10, halfvec=halfvec)
    await store.open()
    random = np.random.default_rng(7)
    vectors = random.normal(size=(40, 96)).astype(np.float32)
    made = [
        await stored(store, request(tenant, question=f"q{n}"), vector=v)
        for n, v in enumerate(vectors)
    ]
    for n in range(0, 40, 7):
        query = vectors[n] + random.normal(scale=0.05, size=96)
        (best,) = await store.find_similar(made[0].scope, query, embedder="E", now=NOW, limit=1)
        assert best.entry.id == made[n].id
    await store.close()


async def test_vectors_too_long_for_a_row_go_to_half_precision(store, tenant):
    long = np.random.default_rng(1).normal(size=3072).astype(np.float32)
    made = await stored(store, request(tenant), vector=long, embedder="large")
    (found,) = await store.find_similar(made.scope, long, embedder="large", now=NOW, limit=1)
    assert found.similarity == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(VectorError, match="3600"):
        await store.find_similar(made.scope, np.ones(5000), embedder="huge", now=NOW, limit=1)


async def test_a_superuser_is_refused(postgres: Dsns):
    store = PostgresStore(postgres.admin)
    with pytest.raises(IsolationError, match=r"superuser.*app DSN"):
        await store.open()
    await store.close()


async def test_the_ops_role_is_refused_for_serving(postgres: Dsns):
    store = PostgresStore(postgres.ops)
    with pytest.raises(IsolationError, match="owner"):
        await store.open()
    await store.close()


async def test_an_empty_database_says_what_to_run(bare_database: str):
    store = PostgresStore(bare_database)
    with pytest.raises(StoreError, match="no pgvector"):
        await store.open()
    with psycopg.connect(bare_database, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    with pytest.raises(MigrationError, match="ragcache init"):
        await store.find_exact(scope(request(TenantId("t"))), keys(request(TenantId("t"))), now=NOW)
    await store.close()


async def test_an_unreachable_server_is_unavailable_in_bounded_time():
    store = PostgresStore("host=/nonexistent user=x dbname=x", pool_wait_s=0.05, open_wait_s=0.5)
    with pytest.raises(StoreUnavailableError):
        await store.open()
    asked = request(TenantId("t"))
    with pytest.raises(StoreUnavailableError):
        await store.find_exact(scope(asked), keys(asked), now=NOW)
    await store.close()


async def test_a_crowd_of_changed_neighbours_hides_nobody(store, tenant):
    """More of them than are looked at first: the search looks further."""
    old = (Document(text="old", source="old"),)
    for n in range(12):
        asked = request(tenant, question=f"q{n}", documents=old)
        made = await stored(store, asked, vector=unit(1.0, 0.001 * n))
    live = await stored(store, request(tenant, question="live"), vector=unit(1.0, 0.2))
    await store.change(tenant, ["old"])
    found = await store.find_similar(made.scope, unit(1.0), embedder="E", now=NOW, limit=2)
    assert [c.entry.id for c in found] == [live.id]
