"""Who is served what: tenants, principals, access tags, quarantine."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ragcache.types import Document, TenantId
from tests.isolation_world import World, hunt
from tests.store_samples import NOW, keys, request, scope, served, stored


async def test_random_operations_of_tenants_that_share_all_but_their_name_leak_nothing(another):
    world = World([await another(), await another()])
    assert await hunt(world, 400) is None
    assert world.hits > 20, "too little was found for the test to mean anything"


async def test_a_store_that_forgets_for_whom_it_remembers_is_found_out(another):
    """The control: what the random operations would say."""
    store = await another()
    found: dict[str, object] = {}
    find = store.find_exact

    async def shared_by_all(scope, keys, *, now):
        if keys.exact not in found:
            found[keys.exact] = await find(scope, keys, now=now)
        return found[keys.exact]

    store.find_exact = shared_by_all
    assert await hunt(World([store]), 400) is not None


async def test_the_same_keys_in_another_tenant_are_another_entry(store, tenant):
    mine = await stored(store, request(tenant))
    theirs = replace(mine, scope=replace(mine.scope, tenant=TenantId(f"{tenant}:b")))
    assert not await store.find_exact(theirs.scope, theirs.keys, now=NOW)
    assert await store.put(theirs, await store.snapshot(theirs.scope, ())) == ""
    (found,) = await store.find_exact(theirs.scope, theirs.keys, now=NOW)
    assert found.entry.scope.tenant == theirs.scope.tenant
    (found,) = await store.find_exact(mine.scope, mine.keys, now=NOW)
    assert found.entry.scope.tenant == tenant


async def test_private_entries_are_their_principals_alone(store, tenant):
    ann, bob = request(tenant, principal="ann"), request(tenant, principal="bob")
    await stored(store, ann)
    assert await served(store, ann)
    assert not await served(store, bob)


async def test_a_shared_entry_serves_everybody_in_the_tenant(store, tenant):
    asked = request(tenant, sharing="tenant", principal="ann")
    made = await stored(store, asked)
    other = asked.replace(principal="bob")
    (found,) = await store.find_exact(scope(other), keys(other), now=NOW)
    assert found.entry.id == made.id
    assert found.entry.scope.principal == "ann"


async def test_a_waiting_entry_serves_its_writer_until_it_is_taken_out(store, tenant):
    asked = request(tenant, sharing="tenant", principal="ann")
    made = await stored(store, asked, state="quarantined")
    other = asked.replace(principal="bob")
    assert await store.find_exact(scope(asked), keys(asked), now=NOW)
    assert not await store.find_exact(scope(other), keys(other), now=NOW)
    await store.quarantine(made.scope, made.id, reason="bad signature")
    assert not await store.find_exact(scope(asked), keys(asked), now=NOW)


async def test_a_live_entry_can_be_taken_out_of_service(store, tenant):
    asked = request(tenant)
    made = await stored(store, asked)
    await store.quarantine(made.scope, made.id, reason="bad_hit")
    assert not await served(store, asked)


async def test_the_askers_tags_must_cover_every_source_document(store, tenant):
    asked = request(tenant, documents=(Document(text="secret", source="s", access={"hr"}),))
    made = await stored(store, asked)
    assert not await store.find_exact(made.scope, made.keys, now=NOW)
    cleared = replace(made.scope, access=frozenset({"hr", "it"}))
    assert await store.find_exact(cleared, made.keys, now=NOW)


async def test_what_is_similar_is_held_back_from_those_who_lack_a_tag(store, tenant):
    asked = request(tenant, documents=(Document(text="secret", source="s", access={"hr"}),))
    made = await stored(store, asked)
    assert not await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)
    cleared = replace(made.scope, access=frozenset({"hr", "it"}))
    assert await store.find_similar(cleared, made.vector, embedder="E", now=NOW, limit=1)


async def test_one_has_the_turn_and_others_wait_until_it_is_free(store, another, tenant):
    other = await another()
    place = scope(request(tenant))
    async with store.alone(place, "key") as leading:
        assert leading
        async with other.alone(place, "key") as following:
            assert not following
        async with store.alone(place, "key") as again:
            assert not again
        async with other.alone(place, "other key") as apart:
            assert apart
    async with asyncio.timeout(20):
        while True:
            async with other.alone(place, "key") as leading:
                if leading:
                    break
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("theirs", [{"tenant": "{}:x"}, {"principal": "bob"}])
async def test_tenants_and_principals_never_wait_for_each_other(store, another, tenant, theirs):
    other = await another()
    mine = request(tenant, principal="ann")
    changed = mine.replace(**{k: v.format(tenant) for k, v in theirs.items()})
    async with store.alone(scope(mine), "key"), other.alone(scope(changed), "key") as leading:
        assert leading


async def test_whoever_is_cancelled_leaves_no_turn_taken(store, another, tenant):
    place = scope(request(tenant))

    async def hold():
        async with store.alone(place, "key"):
            await asyncio.sleep(60)

    for ticks in range(0, 40, 3):
        task = asyncio.create_task(hold())
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    other = await another()
    async with asyncio.timeout(30):
        while True:
            async with other.alone(place, "key") as leading:
                if leading:
                    break
            await asyncio.sleep(0.02)
