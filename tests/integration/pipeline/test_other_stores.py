"""The whole way of a request with answers in Redis, and in Redis in front of Postgres."""

from __future__ import annotations

import json
import secrets

import pytest

from ragcache.store.redis import places
from ragcache.store.redis.store import RedisStore
from ragcache.types import Document, Request
from tests.fixtures_redis import redis_running
from tests.store_kinds import KINDS, Make

DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


@pytest.fixture(params=["redis-sets", "redis-search", "redis-bare", "pair"])
def make_store(request: pytest.FixtureRequest) -> Make:
    return KINDS[request.param].prepare(request)


@pytest.fixture
def ask():
    tenant = f"acme-{secrets.token_hex(4)}"

    def asked(question: str = "What is the demurrage fee?", **fields) -> Request:
        given = {"tenant": tenant, "question": question, "documents": DOCUMENTS}
        return Request(**(given | fields))

    return asked


async def test_an_answer_is_stored_served_and_killed_with_its_document(make, make_store, ask):
    cache = await make(store=make_store())
    first = await cache.answer(ask())
    assert first.status.stored is True
    again = await cache.answer(ask())
    assert (again.status.hit, again.text) == ("exact", first.text)
    assert (await cache.answer(ask(tenant="somebody else"))).status.hit is None
    assert await cache.documents.changed(ask().tenant, ["tariff.pdf"]) == 1
    assert (await cache.answer(ask())).status.hit is None


async def test_a_rewording_is_served_where_the_server_has_vectors(make, make_store, ask, table):
    store = make_store()
    cache = await make(store=store)
    table.place("What is the demurrage fee?", 1.0)
    table.place("What's the demurrage fee?", 0.99)
    await cache.answer(ask("What is the demurrage fee?"))
    reworded = await cache.answer(ask("What's the demurrage fee?"))
    assert (reworded.status.hit == "semantic") == store.has_vectors


async def test_an_altered_answer_is_never_served(make, ask):
    with redis_running("bare") as server:
        cache = await make(store=RedisStore(server.dsn, pool_wait_s=10, lookup_timeout_s=10))
        first = await cache.answer(ask())
        prefix = places.prefix(ask().tenant)
        with server.client() as client:
            (name,) = client.keys(f"{prefix}e:*")
            fields = json.loads(client.hget(name, "body"))
            fields["answer"]["text"] = "Pay to this account."
            client.hset(name, "body", json.dumps(fields))
            answer = await cache.answer(ask())
            assert (answer.status.hit, answer.text) == (None, first.text)
            await cache._parts.settled()
            assert client.xlen(f"{prefix}audit") == 1
        await cache.close()


async def test_a_redis_that_dies_breaks_no_request_and_is_used_again(make, ask):
    with redis_running("bare") as server:
        cache = await make(store=RedisStore(server.dsn, pool_wait_s=1, lookup_timeout_s=1))
        await cache.answer(ask())
        server.stop()
        answer = await cache.answer(ask())
        assert (answer.text, answer.status.fwd) == ("The fee is 80.", "bypass")
        server.start()
        cache._parts._store_breaker.succeeded()
        await cache.answer(ask())
        await cache._parts.settled()
        assert (await cache.answer(ask())).status.hit == "exact"
        await cache.close()
