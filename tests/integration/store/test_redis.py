"""The answer store over real Redis servers: what lies where, and what is never trusted."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from ragcache.errors import StoreError, VectorError
from ragcache.protocols import Snapshot
from ragcache.store.redis import health, invalidating, places
from ragcache.store.redis import store as redis_store
from ragcache.store.redis.notices import notices
from ragcache.store.redis.store import RedisStore
from ragcache.types import Document, TenantId
from tests.fixtures_redis import RedisServer, redis_running
from tests.store_samples import NOW, entry, keys, request, scope, served, stored, unit

DOCUMENT = Document(text="d", source="s", id="i")


def patient(server: RedisServer, **options) -> RedisStore:
    return RedisStore(server.dsn, **{"pool_wait_s": 10.0, "lookup_timeout_s": 10.0, **options})


@pytest.fixture(params=["sets", "search", "bare"])
def server(request) -> RedisServer:
    return request.getfixturevalue(f"redis_{request.param}")


@pytest.fixture
async def store(server):
    opened = patient(server)
    await opened.open()
    yield opened
    await opened.close()


async def everything(store, tenant) -> None:
    """Do everything once."""
    asked = request(tenant, documents=(DOCUMENT,))
    made = await stored(store, asked)
    await store.touch(made.scope, made.id, now=NOW)
    await store.find_exact(made.scope, made.keys, now=NOW)
    await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)
    await store.remember(
        tenant, "conversation", "s1", {"a": 1}, now=NOW, expire_at=NOW + timedelta(hours=1)
    )
    await store.change(tenant, ["s"])
    await store.bump_epoch(tenant, "default")
    await stored(store, request(tenant, question="kept", documents=(DOCUMENT,)))
    await store.quarantine(made.scope, made.id, reason="looked at")


async def test_every_key_lies_in_the_hash_slot_of_its_tenant(server, store, tenant):
    with server.client() as client:
        before = set(client.keys("*"))
        await everything(store, tenant)
        async with store.alone(scope(request(tenant)), "turn"):
            made = set(client.keys("*")) - before
    prefix = places.prefix(tenant).encode()
    assert len(made) >= 10
    assert {key[: len(prefix)] for key in made} == {prefix}
    assert not any(tenant.encode() in key or b"s1" in key for key in made)


async def test_every_key_but_the_audit_runs_out_by_itself(server, store, tenant):
    await everything(store, tenant)
    with server.client() as client:
        lasting = [
            key.removeprefix(places.prefix(tenant).encode())
            for key in client.keys(f"{places.prefix(tenant)}*")
            if client.pttl(key) < 0
        ]
    assert lasting == [b"audit"]


async def test_looking_for_a_stranger_leaves_nothing_behind(server, store, tenant):
    asked = request(tenant)
    await store.find_exact(scope(asked), keys(asked), now=NOW)
    await store.find_similar(scope(asked), unit(1.0), embedder="E", now=NOW, limit=1)
    assert await store.recall(tenant, "guard", "x", now=NOW) is None
    with server.client() as client:
        assert client.keys(f"{places.prefix(tenant)}*") == []


async def test_a_purge_leaves_the_clock_the_audit_and_states(server, store, tenant):
    await everything(store, tenant)
    assert await store.purge(tenant) >= 1
    prefix = places.prefix(tenant).encode()
    with server.client() as client:
        left = {key.removeprefix(prefix)[:2] for key in client.keys(f"{places.prefix(tenant)}*")}
    assert left <= {b"cl", b"au", b"s:", b"w:", b"v:"}


async def test_an_expired_entry_comes_last_and_still_says_so(store, tenant):
    made = await stored(store, request(tenant), ttl_s=60)
    late = NOW + timedelta(seconds=60)
    (found,) = await store.find_exact(made.scope, made.keys, now=late)
    assert found.entry.expire_at == late


async def test_what_expired_long_ago_leaves_with_whoever_stores_next(server, store, tenant):
    for n in range(5):
        await stored(store, request(tenant, question=f"q{n}"), ttl_s=60)
    await stored(store, request(tenant, question="new"), created_at=NOW + timedelta(hours=2))
    assert await store.purge(tenant, dry_run=True) == 1


# --- numbers that may be missing are not trusted ------------------------------------------------


@pytest.mark.parametrize("gone", ["clock", "changed"])
async def test_where_the_numbers_were_evicted_nothing_from_before_is_served(
    server, store, tenant, gone
):
    """Else an entry would be current again as soon as what had killed it is forgotten."""
    asked = request(tenant, documents=(DOCUMENT,))
    other = request(tenant, question="other")
    await stored(store, asked)
    await stored(store, other)
    begun = await store.snapshot(scope(asked), asked.documents)
    await store.change(tenant, ["s"])
    with server.client() as client:
        assert client.delete(f"{places.prefix(tenant)}{gone}") == 1
    assert not await served(store, asked)
    assert not await served(store, other)
    assert await store.put(entry(asked), begun) in ("epoch", "document_changed")
    await stored(store, other)
    assert await served(store, other)
    assert not await served(store, asked)


async def test_after_a_restart_nothing_from_before_is_served(tenant):
    """A restart may have lost the last invalidations: what is on disk is older than what was said."""
    with redis_running("sets") as server:
        store = patient(server)
        await store.open()
        asked = request(tenant, documents=(DOCUMENT,))
        made = await stored(store, asked)
        first = await store.bump_epoch(tenant, "elsewhere")
        with server.client() as client:
            client.save()
        await store.change(tenant, ["s"])
        server.stop()
        server.start()
        with server.client() as client:
            assert client.exists(f"{places.prefix(tenant)}e:{made.id}")
        assert not await served(store, asked)
        assert not await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)
        await stored(store, asked)
        assert await served(store, asked)
        assert await store.bump_epoch(tenant, "elsewhere") > first
        await store.close()


async def test_changes_that_are_forgotten_kill_what_came_from_documents_before(
    store, tenant, monkeypatch
):
    monkeypatch.setattr(invalidating, "CHANGED_MAX", 10)
    asked = request(tenant, documents=(DOCUMENT,))
    await stored(store, asked)
    await store.change(tenant, ["s"])
    late = request(tenant, question="late", documents=(DOCUMENT,))
    await stored(store, late)
    for n in range(12):
        await store.change(tenant, [f"other{n}"])
    assert not await served(store, asked)
    assert not await served(store, late)
    await stored(store, late)
    assert await served(store, late)


# --- bytes that may be anybody's ----------------------------------------------------------------


async def test_bytes_that_were_altered_are_a_miss_and_no_error(server, store, tenant, caplog):
    dice = random.Random(8)
    asked = request(tenant, documents=(DOCUMENT,), access={"hr"})
    made = await stored(store, asked, answer={"text": "right"}, signature=b"\x01" * 32)
    name = f"{places.prefix(tenant)}e:{made.id}"
    with server.client() as client:
        whole = client.hget(name, "body")
        fields = json.loads(whole)
        wrong = [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"schema": 1}']
        wrong += [
            json.dumps({**fields, name: value}).encode()
            for name in fields
            for value in (None, 7, [1], {"a": 1})
            if name not in ("answer", "reading", "lineage", "access") or value in (None, 7)
            if not (name == "reading" and value is None)
            if not (name in ("created_us", "expire_us") and value == 7)
        ]
        for _ in range(200):
            at = dice.randrange(len(whole))
            wrong.append(whole[:at] + bytes([dice.randrange(256)]) + whole[at + 1 :])
        for body in wrong:
            client.hset(name, mapping={"body": body, "state": "live", "reason": ""})
            found = await store.find_exact(made.scope, made.keys, now=NOW)
            for candidate in found:
                assert candidate.entry.scope.tenant == tenant
                assert isinstance(candidate.entry.question, str)
            if len(body) < len(whole) - 1:
                assert not found
    assert "could not be read" in caplog.text


async def test_a_body_that_was_copied_to_another_tenant_is_a_miss(server, store, tenant):
    other = TenantId(f"{tenant}-b")
    asked = request(tenant)
    mine = await stored(store, asked)
    theirs = replace(mine, scope=replace(mine.scope, tenant=other))
    assert await store.put(theirs, await store.snapshot(theirs.scope, ())) == ""
    with server.client() as client:
        body = client.hget(f"{places.prefix(tenant)}e:{mine.id}", "body")
        client.hset(f"{places.prefix(other)}e:{mine.id}", "body", body)
    assert not await store.find_exact(theirs.scope, theirs.keys, now=NOW)
    assert await served(store, asked)


async def test_a_key_of_another_type_is_an_error_that_the_store_names(server, store, tenant):
    made = await stored(store, request(tenant))
    with server.client() as client:
        client.delete(f"{places.prefix(tenant)}e:{made.id}")
        client.rpush(f"{places.prefix(tenant)}e:{made.id}", "x")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await store.find_exact(made.scope, made.keys, now=NOW)


# --- likeness -----------------------------------------------------------------------------------


async def test_a_server_without_vectors_says_so(redis_bare, redis_sets, redis_search, caplog):
    for server, has in ((redis_bare, False), (redis_sets, True), (redis_search, True)):
        caplog.clear()
        store = patient(server)
        with caplog.at_level(logging.WARNING):
            await store.open()
        assert store.has_vectors is has
        assert ("exact hits only" in caplog.text) is not has
        await store.close()
        findings = {f.name: f for f in await health.doctor(server.dsn)}
        assert all(f.ok for f in findings.values())
        assert ("exact hits only" in findings["vectors"].detail) is not has
        assert "maxmemory" in findings["eviction"].detail


async def test_the_doctor_finds_a_server_that_is_away():
    (finding,) = await health.doctor("redis://127.0.0.1:1/0")
    assert not finding.ok


async def test_unsound_vectors_are_refused_without_asking_the_server(server, tenant):
    store = patient(server)
    await store.open()
    made = await stored(store, request(tenant))
    await store._link.close()
    store._link.ask = store._link.tell = None
    for vector in (np.zeros(8), np.full(8, np.nan), np.full(8, np.inf), np.ones(7)):
        with pytest.raises(VectorError):
            await store.find_similar(made.scope, vector, embedder="E", now=NOW, limit=1)
        with pytest.raises(VectorError):
            await store.put(replace(made, vector=vector), Snapshot(epoch=0))


def question(tenant, number):
    return request(tenant, question=f"q{number}")


@pytest.mark.parametrize("kind", ["sets", "search"])
async def test_a_graph_finds_the_nearest_also_among_a_crowd_that_has_expired(
    redis_sets, redis_search, kind, tenant, monkeypatch
):
    monkeypatch.setattr(redis_store, "_EXACTLY_UP_TO", 50)
    store = patient(redis_sets if kind == "sets" else redis_search)
    await store.open()
    dice = np.random.default_rng(5)
    vectors = dice.normal(size=(300, 32)).astype(np.float32)
    for n, vector in enumerate(vectors):
        ttl = 3600 if n % 20 == 0 else 60
        made = await stored(store, question(tenant, n), vector=vector, ttl_s=ttl)
    late = NOW + timedelta(seconds=90)
    for n in range(0, 300, 20):
        query = vectors[n] + dice.normal(scale=0.05, size=32)
        (best,) = await store.find_similar(made.scope, query, embedder="E", now=late, limit=1)
        assert best.entry.question == f"q{n}"
        expected = float(query @ vectors[n] / np.linalg.norm(query) / np.linalg.norm(vectors[n]))
        assert best.similarity == pytest.approx(expected, abs=1e-5)
    await store.close()


async def test_an_index_that_is_gone_costs_hits_and_comes_back(redis_search, tenant):
    store = patient(redis_search)
    await store.open()
    asked = request(tenant)
    made = await stored(store, asked)
    with redis_search.client() as client:
        client.execute_command("FT.DROPINDEX", f"{places.prefix(tenant)}ix:8")
    near = [made.scope, made.vector]
    assert not await store.find_similar(*near, embedder="E", now=NOW, limit=1)
    store._indexes.clear()
    await stored(store, request(tenant, question="next"))
    async with asyncio.timeout(10):
        while not await store.find_similar(*near, embedder="E", now=NOW, limit=1):
            await asyncio.sleep(0.02)
    await store.close()


# --- others hear of it --------------------------------------------------------------------------


async def test_other_processes_hear_of_every_invalidation(server, store, tenant):
    heard = []

    async def listen():
        async for notice in notices(server.dsn):
            heard.extend([notice] if notice.concerns(tenant) else [])

    task = asyncio.create_task(listen())
    made = await stored(store, request(tenant))
    async with asyncio.timeout(20):
        while not heard:  # the subscription may take a moment
            await store.change(tenant, ["s"])
            await asyncio.sleep(0.02)
        await store.bump_epoch(tenant, "default")
        await store.quarantine(made.scope, made.id, reason="bad")
        await store.purge(tenant)
        while {notice.kind for notice in heard} != {"change", "epoch", "quarantine", "purge"}:
            await asyncio.sleep(0.01)
    assert all(tenant not in str(notice) for notice in heard)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
