"""What is stored comes back whole, in order, once, until its time is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from ragcache.errors import MissingTenantError
from ragcache.protocols import Snapshot
from ragcache.types import Document, EntryId, TenantId
from tests.store_samples import NOW, entry, keys, request, scope, served, stored


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
    assert replace(found.entry, vector=None) == replace(made, vector=None)
    assert found.exact
    assert found.current
    assert found.similarity == 1.0


async def test_nothing_is_found_where_nothing_is_stored(store, tenant):
    asked = request(tenant)
    assert not await store.find_exact(scope(asked), keys(asked), now=NOW)


async def test_the_exact_key_comes_before_the_normal_one(store, tenant):
    loose = await stored(store, request(tenant, question="what is IT"))
    asked = request(tenant, question="What is it?")
    tight = await stored(store, asked)
    found = await store.find_exact(scope(asked), keys(asked), now=NOW + timedelta(seconds=1))
    assert [c.entry.id for c in found] == [tight.id, loose.id]
    assert [c.exact for c in found] == [True, False]


async def test_an_expired_entry_is_not_served(store, tenant):
    asked = request(tenant)
    made = await stored(store, asked, ttl_s=60)
    assert await served(store, asked, now=NOW + timedelta(seconds=59.9)) == [made.id]
    assert await served(store, asked, now=NOW + timedelta(seconds=60)) == []


async def test_a_hit_never_extends_a_lifetime(store, tenant):
    made = await stored(store, request(tenant))
    for second in range(5):
        await store.touch(made.scope, made.id, now=NOW + timedelta(seconds=second))
    (found,) = await store.find_exact(made.scope, made.keys, now=NOW)
    assert found.entry.expire_at == made.expire_at


async def test_touching_what_is_gone_is_no_error(store, tenant):
    await store.touch(scope(request(tenant)), EntryId("never-stored"), now=NOW)


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


async def test_another_process_finds_it(store, another, tenant):
    asked = request(tenant)
    made = await stored(store, asked)
    assert await served(await another(), asked) == [made.id]


@pytest.mark.parametrize("quota", [3, 10])
async def test_a_namespace_keeps_its_quota_by_least_recent_use(another, tenant, quota):
    store = await another(quota=quota)
    asked = [request(tenant, question=f"q{n}") for n in range(quota + 4)]
    elsewhere = request(tenant, namespace="n2")
    other = await stored(store, elsewhere, created_at=NOW - timedelta(days=1))
    first = None
    for n, one in enumerate(asked):
        moment = NOW + timedelta(seconds=n)
        made = await stored(store, one, created_at=moment)
        first = first or made
        await store.touch(first.scope, first.id, now=moment + timedelta(microseconds=1))
    kept = [n for n, one in enumerate(asked) if await served(store, one)]
    assert kept == [0, *range(5, quota + 4)]
    assert await served(store, elsewhere) == [other.id], "a namespace made room in another"


async def test_a_quota_of_none_stores_nothing(another, tenant):
    store = await another(quota=0)
    assert await store.put(entry(request(tenant)), Snapshot(epoch=0)) == "quota"


async def test_a_tenant_is_never_defaulted(store):
    asked = request(TenantId("t"))
    nobody = replace(scope(asked), tenant=TenantId(""))
    with pytest.raises(MissingTenantError):
        await store.find_exact(nobody, keys(asked), now=NOW)
    with pytest.raises(MissingTenantError):
        await store.put(entry(asked, scope=nobody), Snapshot(epoch=0))
    with pytest.raises(MissingTenantError):
        await store.purge(TenantId(""))
