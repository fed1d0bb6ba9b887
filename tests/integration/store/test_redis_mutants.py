"""Ways to lose isolation in Redis are planted, and the random operations notice them."""

from __future__ import annotations

import pytest

from ragcache.store import turns
from ragcache.store.redis import entries, link, places, scripts
from ragcache.store.redis.store import RedisStore
from tests.isolation_world import World, hunt

OPERATIONS = 5_000


async def look(dsn: str) -> AssertionError | None:
    store = RedisStore(dsn, pool_size=2, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    try:
        return await hunt(World([store]), OPERATIONS)
    finally:
        await store.close()


def without_tenant_in_keys(monkeypatch):
    monkeypatch.setattr(places, "prefix_of", lambda digest: "rc1:{everybody}:")


@pytest.mark.parametrize("kind", ["sets", "search", "bare"])
async def test_a_key_without_the_tenant_is_found(request, kind, monkeypatch):
    server = request.getfixturevalue(f"redis_{kind}")
    without_tenant_in_keys(monkeypatch)
    found = await look(server.dsn)
    assert found is not None
    assert "was served" not in str(found), "what the body says of its tenant should have held"


async def test_a_key_without_the_tenant_leaks_where_the_body_is_not_compared(
    redis_sets, monkeypatch
):
    without_tenant_in_keys(monkeypatch)
    monkeypatch.setattr(entries, "_belongs", lambda fields, scope: True)
    assert "was served an answer of" in str(await look(redis_sets.dsn))


async def test_a_turn_without_its_tenant_is_found(redis_bare, monkeypatch):
    monkeypatch.setattr(turns, "encode", lambda parts: parts[-1].encode())
    without_tenant_in_keys(monkeypatch)
    assert await look(redis_bare.dsn) is not None


async def test_a_lookup_that_ignores_who_waits_for_promotion_is_found(redis_bare, monkeypatch):
    """The control of the tests of quarantine: a script without that condition serves too much."""
    from tests.store_samples import NOW, keys, request, scope, stored

    real = scripts.script
    monkeypatch.setattr(
        link, "script", lambda name: _without(real(name), " and e.writer == writer")
    )
    store = RedisStore(redis_bare.dsn, lookup_timeout_s=10)
    await store.open()
    asked = request("waiting", sharing="tenant", principal="ann")
    await stored(store, asked, state="quarantined")
    other = asked.replace(principal="bob")
    assert await store.find_exact(scope(other), keys(other), now=NOW)
    await store.close()


def _without(script: scripts.Script, condition: str) -> scripts.Script:
    assert condition in script.text or "FIELDS" not in script.text
    return scripts.Script(text=script.text.replace(condition, ""), sha="0" * 40)
