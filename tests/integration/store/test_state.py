"""States kept between requests: by tenant, until they expire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOW = datetime(2031, 4, 2, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


async def test_a_state_is_recalled_until_it_expires(store, tenant):
    assert await store.recall(tenant, "conversation", "s1", now=NOW) is None
    await store.remember(tenant, "conversation", "s1", {"turns": 1}, now=NOW, expire_at=LATER)
    await store.remember(tenant, "conversation", "s1", {"turns": 2}, now=NOW, expire_at=LATER)
    assert await store.recall(tenant, "conversation", "s1", now=NOW) == {"turns": 2}
    assert await store.recall(tenant, "conversation", "s1", now=LATER) is None


async def test_a_state_belongs_to_its_tenant_kind_and_key(store, tenant):
    await store.remember(tenant, "conversation", "s1", {"x": 1}, now=NOW, expire_at=LATER)
    for where in (
        (f"{tenant}-b", "conversation", "s1"),
        (tenant, "guard", "s1"),
        (tenant, "conversation", "s2"),
    ):
        assert await store.recall(*where, now=NOW) is None


async def test_expired_states_leave_with_whoever_writes_next(store, tenant):
    for at in range(5):
        await store.remember(tenant, "conversation", f"s{at}", {}, now=NOW, expire_at=LATER)
    after = LATER + timedelta(seconds=1)
    await store.remember(
        tenant, "conversation", "new", {}, now=after, expire_at=after + timedelta(1)
    )
    for at in range(5):
        assert await store.recall(tenant, "conversation", f"s{at}", now=NOW) is None
