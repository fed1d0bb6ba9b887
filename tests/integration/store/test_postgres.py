"""The answer store over a real Postgres: what is found, what is kept, what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import psycopg
import pytest

from ragcache.errors import (
    IsolationError,
    MigrationError,
    MissingTenantError,
    StoreError,
    StoreUnavailableError,
    VectorError,
)
from ragcache.protocols import Snapshot
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from ragcache.types import Document, TenantId
from tests.store_samples import NOW, entry, keys, request, scope, unit


async def stored(store, asked, **changes):
    """Store an answer to the request as the pipeline does; return the entry."""
    made = entry(asked, **changes)
    assert await store.put(made, await store.snapshot(made.scope, asked.documents)) == ""
    return made


async def test_a_stored_entry_comes_back_whole(store, tenant):
    asked = request(tenant, documents=(Document(text="one", source="s", id="i"),), access={"hr"})
    made = await stored(
        store,
        asked,
        answer={"text": "a\u0000b \ud800", "n": 1e-320, "list": [None, True]},
        reading={"numbers": [1, 2.5]},
        kid="k1",
        signature=b"\x00\xff",
        model="m",
        version="v",
    )
    (found,) = await store.find_exact(made.scope, made.keys, now=NOW)
    assert found.entry == replace(made, vector=None)
    assert found.exact
    assert found.current
    assert found.similarity == 1.0


async def test_the_exact_key_comes_before_the_normal_one(store, tenant):
    loose = await stored(store, request(tenant, question="what is IT"))
    asked = request(tenant, question="What is it?")
    tight = await stored(store, asked)
    found = await store.find_exact(scope(asked), keys(asked), now=NOW + timedelta(seconds=1))
    assert [c.entry.id for c in found] == [tight.id, loose.id]
    assert [c.exact for c in found] == [True, False]


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


async def test_neighbours_come_nearest_first_and_only_from_the_scope(store, tenant):
    asked = request(tenant)
    near = await stored(store, request(tenant, question="near"), vector=unit(1.0, 0.1))
    far = await stored(store, request(tenant, question="far"), vector=unit(1.0, 2.0))
    await stored(store, request(tenant, question="other", system="Other"), vector=unit(1.0, 0.0))
    await stored(store, request(tenant, question="else", principal="p2"), vector=unit(1.0, 0.0))
    found = await store.find_similar(scope(asked), unit(1.0, 0.0), embedder="E", now=NOW, limit=5)
    assert [c.entry.id for c in found] == [near.id, far.id]
    assert found[0].similarity == pytest.approx(float(unit(1.0, 0.0) @ unit(1.0, 0.1)), abs=1e-6)


async def test_vectors_of_another_embedder_are_no_candidates(store, tenant):
    made = await stored(store, request(tenant), embedder="M1")

    async def look(embedder):
        return await store.find_similar(
            made.scope, made.vector, embedder=embedder, now=NOW, limit=3
        )

    assert not await look("M2")
    assert not await look("M1 task=document")
    assert [c.entry.id for c in await look("M1")] == [made.id]


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


async def test_a_newer_answer_of_the_same_writer_takes_the_place_of_the_older(store, tenant):
    asked = request(tenant)
    await stored(store, asked, answer={"text": "old"})
    await stored(store, asked, answer={"text": "new"})
    found = await store.find_exact(scope(asked), keys(asked), now=NOW)
    assert [c.entry.answer for c in found] == [{"text": "new"}]


async def test_storing_twice_is_storing_once(store, tenant):
    asked = request(tenant)
    made = await stored(store, asked)
    assert await store.put(made, await store.snapshot(made.scope, ())) == ""
    assert len(await store.find_exact(scope(asked), keys(asked), now=NOW)) == 1


async def test_a_waiting_entry_serves_its_writer_alone(store, tenant):
    asked = request(tenant, sharing="tenant", principal="ann")
    made = await stored(store, asked, state="quarantined")
    other = asked.replace(principal="bob")
    assert await store.find_exact(scope(asked), keys(asked), now=NOW)
    assert not await store.find_exact(scope(other), keys(other), now=NOW)
    await store.quarantine(made.scope, made.id, reason="bad signature")
    assert not await store.find_exact(scope(asked), keys(asked), now=NOW)


async def test_a_shared_entry_serves_everybody_in_the_tenant(store, tenant):
    asked = request(tenant, sharing="tenant", principal="ann")
    made = await stored(store, asked)
    other = asked.replace(principal="bob")
    (found,) = await store.find_exact(scope(other), keys(other), now=NOW)
    assert found.entry.id == made.id
    assert found.entry.scope.principal == "ann"


async def test_the_askers_tags_must_cover_every_source_document(store, tenant):
    asked = request(tenant, documents=(Document(text="secret", source="s", access={"hr"}),))
    made = await stored(store, asked)
    assert not await store.find_exact(made.scope, made.keys, now=NOW)
    assert not await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)
    cleared = replace(made.scope, access=frozenset({"hr", "it"}))
    assert await store.find_exact(cleared, made.keys, now=NOW)


async def test_texts_that_postgres_cannot_hold_are_refused_or_replaced(store, tenant):
    assert (
        await store.put(entry(request(tenant, question="a\0b")), Snapshot(epoch=0)) == "unstorable"
    )
    odd = request(tenant, documents=(Document(text="x", source="s\0" + "long" * 2000),))
    made = await stored(store, odd)
    assert await store.change(tenant, [odd.documents[0].source]) == 1
    (found,) = await store.find_exact(made.scope, made.keys, now=NOW)
    assert not found.current


async def test_a_tenant_is_never_defaulted(store):
    asked = request(TenantId("t"))
    nobody = replace(scope(asked), tenant=TenantId(""))
    with pytest.raises(MissingTenantError):
        await store.find_exact(nobody, keys(asked), now=NOW)


async def test_purging_a_tenant_removes_its_rows_only(store, tenant):
    mine, theirs = request(tenant), request(TenantId(f"{tenant}-b"))
    await stored(store, mine)
    await stored(store, theirs)
    assert await store.purge(tenant, dry_run=True) == 1
    assert await store.find_exact(scope(mine), keys(mine), now=NOW)
    assert await store.purge(tenant) == 1
    assert not await store.find_exact(scope(mine), keys(mine), now=NOW)
    assert await store.find_exact(scope(theirs), keys(theirs), now=NOW)


@pytest.mark.parametrize("stored_before", [True, False])
async def test_an_answer_on_its_way_in_does_not_survive_a_purge(store, tenant, stored_before):
    asked = request(tenant)
    if stored_before:
        await stored(store, request(tenant, question="first"))
    begun = await store.snapshot(scope(asked), asked.documents)
    await store.purge(tenant)
    assert await store.put(entry(asked), begun) == "epoch"


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


async def test_a_state_is_kept_as_it_was_until_it_expires(store, tenant):
    value = {
        "z": 1,
        "a": ["x\u0000", 1.0, 1e-320],
        "turns": [{"role": "user", "content": "\ud800"}],
    }
    until = NOW + timedelta(seconds=60)
    await store.remember(tenant, "conversation", "s1", value, now=NOW, expire_at=until)
    kept = await store.recall(tenant, "conversation", "s1", now=NOW)
    assert kept == value
    assert list(kept) == ["z", "a", "turns"]
    assert await store.recall(TenantId(f"{tenant}-b"), "conversation", "s1", now=NOW) is None
    assert await store.recall(tenant, "conversation", "s1", now=until) is None
