"""States kept between requests: as they were, by tenant, until they expire."""

from __future__ import annotations

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
