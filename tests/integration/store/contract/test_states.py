"""States kept between requests: as they were, by tenant, until they expire."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from ragcache.types import TenantId
from tests.store_samples import NOW

LATER = NOW + timedelta(hours=1)


async def test_a_state_is_recalled_as_it_was_until_it_expires(store, tenant):
    value = {
        "z": 1,
        "a": ["x\u0000", 1.0, 1e-320],
        "turns": [{"role": "user", "content": "\ud800"}],
    }
    assert await store.recall(tenant, "conversation", "s1", now=NOW) is None
    await store.remember(tenant, "conversation", "s1", {"turns": 1}, now=NOW, expire_at=LATER)
    await store.remember(tenant, "conversation", "s1", value, now=NOW, expire_at=LATER)
    kept = await store.recall(tenant, "conversation", "s1", now=NOW)
    assert kept == value
    assert list(kept) == ["z", "a", "turns"]
    assert await store.recall(tenant, "conversation", "s1", now=LATER) is None


async def test_a_state_belongs_to_its_tenant_kind_and_key(store, tenant):
    await store.remember(tenant, "conversation", "s1", {"x": 1}, now=NOW, expire_at=LATER)
    for where in (
        (TenantId(f"{tenant}-b"), "conversation", "s1"),
        (tenant, "guard", "s1"),
        (tenant, "conversation", "s2"),
    ):
        assert await store.recall(*where, now=NOW) is None


async def kept(store, tenant) -> dict | None:
    return await store.recall(tenant, "guard", "d", now=NOW)


async def exchanged(store, tenant, value, seen, *, now=NOW, expire_at=LATER) -> bool:
    return await store.exchange(
        tenant, "guard", "d", value, seen=seen, now=now, expire_at=expire_at
    )


async def test_a_state_is_exchanged_for_the_version_that_was_seen_and_for_no_other(store, tenant):
    assert not await exchanged(store, tenant, {"version": 4}, 3), "there is none of version 3"
    assert await exchanged(store, tenant, {"version": 1, "n": 1}, 0)
    assert not await exchanged(store, tenant, {"version": 1, "n": 2}, 0)
    assert await exchanged(store, tenant, {"version": 2, "n": 3}, 1)
    assert not await exchanged(store, tenant, {"version": 2, "n": 4}, 1)
    assert await kept(store, tenant) == {"version": 2, "n": 3}


async def test_what_has_expired_or_has_no_version_counts_as_none(store, tenant):
    await store.remember(tenant, "guard", "d", {"n": 1}, now=NOW, expire_at=LATER)
    assert await exchanged(store, tenant, {"version": 1}, 0)
    assert not await exchanged(store, tenant, {"version": 1}, 0)
    later = LATER + timedelta(hours=1)
    assert await exchanged(store, tenant, {"version": 1}, 0, now=LATER, expire_at=later)


async def test_of_many_who_count_at_the_same_time_each_is_counted_once(store, another, tenant):
    stores = [store, await another()]

    async def count(where) -> None:
        while True:
            before = await kept(where, tenant) or {"version": 0, "n": 0}
            after = {"version": before["version"] + 1, "n": before["n"] + 1}
            if await exchanged(where, tenant, after, before["version"]):
                return

    await asyncio.gather(*(count(stores[at % 2]) for at in range(20)))
    assert await kept(store, tenant) == {"version": 20, "n": 20}
