"""States kept between requests: by tenant, until they expire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOW = datetime(2031, 4, 2, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


async def test_expired_states_leave_with_whoever_writes_next(store, tenant):
    for at in range(5):
        await store.remember(tenant, "conversation", f"s{at}", {}, now=NOW, expire_at=LATER)
    after = LATER + timedelta(seconds=1)
    await store.remember(
        tenant, "conversation", "new", {}, now=after, expire_at=after + timedelta(1)
    )
    for at in range(5):
        assert await store.recall(tenant, "conversation", f"s{at}", now=NOW) is None
