"""Search by likeness: nearest first, inside the scope, never with a vector that is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from ragcache.errors import VectorError
from ragcache.protocols import Snapshot
from ragcache.types import TenantId
from tests.store_samples import NOW, request, scope, stored, unit


async def test_a_store_says_whether_it_can_search(store, make_store, tenant):
    made = await stored(store, request(tenant))
    found = await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)
    assert bool(found) == store.has_vectors


async def test_similar_questions_come_nearest_first_and_only_from_the_scope(store, tenant):
    asked = request(tenant)
    near = await stored(store, request(tenant, question="near"), vector=unit(1.0, 0.1))
    far = await stored(store, request(tenant, question="far"), vector=unit(1.0, 2.0))
    await stored(store, request(tenant, question="other", system="Other"), vector=unit(1.0, 0.0))
    await stored(store, request(tenant, question="else", principal="p2"), vector=unit(1.0, 0.0))
    await stored(store, request(f"{tenant}-b", question="near"), vector=unit(1.0, 0.0))
    found = await store.find_similar(scope(asked), unit(1.0, 0.0), embedder="E", now=NOW, limit=5)
    assert [c.entry.id for c in found] == [near.id, far.id]
    assert found[0].similarity == pytest.approx(float(unit(1.0, 0.0) @ unit(1.0, 0.1)), abs=1e-2)
    assert not found[0].exact


async def test_expired_entries_are_not_similar(store, tenant):
    made = await stored(store, request(tenant), ttl_s=60)
    late = NOW + timedelta(seconds=60)
    assert await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=3)
    assert not await store.find_similar(made.scope, made.vector, embedder="E", now=late, limit=3)


async def test_another_embedder_makes_nothing_similar(store, tenant):
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
async def test_nothing_is_similar_to_an_unsound_vector(store, tenant, vector):
    made = await stored(store, request(tenant))
    with pytest.raises(VectorError):
        await store.find_similar(made.scope, vector, embedder="E", now=NOW, limit=1)
    with pytest.raises(VectorError):
        await store.put(replace(made, vector=vector), Snapshot(epoch=0))


async def test_another_tenants_flood_of_similar_entries_takes_no_place(store, tenant):
    made = await stored(store, request(tenant, question="mine"), vector=unit(1.0, 0.2))
    other = TenantId(f"{tenant}-flood")
    for n in range(60):
        await stored(store, request(other, question=f"q{n}"), vector=unit(1.0, 0.19))
    (found,) = await store.find_similar(made.scope, unit(1.0, 0.19), embedder="E", now=NOW, limit=5)
    assert found.entry.id == made.id
