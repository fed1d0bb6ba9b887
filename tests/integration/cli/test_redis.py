"""doctor, purge and promote where the store is Redis, or Redis in front of Postgres."""

from __future__ import annotations

import pytest

from ragcache.store.pair import PairStore
from ragcache.store.postgres import PostgresStore
from ragcache.store.redis import places
from ragcache.store.redis.copies import RedisCopies
from ragcache.store.redis.store import RedisStore
from ragcache.types import Document
from tests.store_samples import NOW, request, served, stored

DOCUMENT = Document(text="The fee is 80.", source="fees.pdf")


@pytest.fixture(params=["sets", "bare"])
def server(request):
    return request.getfixturevalue(f"redis_{request.param}")


@pytest.fixture
def cli(bare_cli, server):
    """The command line on a Redis."""
    bare_cli.env = {"RAGCACHE_STORE__KIND": "redis", "RAGCACHE_STORE__REDIS_DSN": server.dsn}
    return bare_cli


@pytest.fixture
async def store(server):
    opened = RedisStore(server.dsn, pool_wait_s=10, lookup_timeout_s=10)
    await opened.open()
    yield opened
    await opened.close()


def test_the_doctor_says_what_the_server_can_do(cli, server):
    told = cli("doctor", "--json").json
    vectors = next(f["detail"] for f in told["findings"] if f["name"] == "vectors")
    assert told["ok"]
    assert ("exact hits only" in vectors) == (server.kind == "bare")
    away = cli("doctor", code=3, RAGCACHE_STORE__REDIS_DSN="redis://127.0.0.1:1")
    assert "FAIL" in away.out


@pytest.mark.parametrize(
    ("criterion", "taken"),
    [
        (("--document", "fees.pdf"), ["one"]),
        (("--writer", "bob"), ["two"]),
        (("--model", "m2"), ["two"]),
        (("--namespace", "default", "--model", "m1"), ["one"]),
        (("--older-than", "2031-01-01"), []),
    ],
)
async def test_purge_counts_and_takes_what_was_selected(cli, store, tenant, criterion, taken):
    asked = {
        "one": request(tenant, question="one", documents=(DOCUMENT,)),
        "two": request(tenant, question="two", principal="bob", namespace="n2"),
    }
    await stored(store, asked["one"], model="m1")
    await stored(store, asked["two"], model="m2")
    would = cli("purge", "--tenant", tenant, *criterion, "--dry-run", "--json").json
    assert would["total"] == len(taken)
    assert await served(store, asked["one"])
    told = cli("purge", "--tenant", tenant, *criterion, "--yes", "--json").json
    assert told["total"] == len(taken)
    for name, one in asked.items():
        assert bool(await served(store, one)) is (name not in taken)


async def test_purge_asks_for_good_and_needs_a_tenant(cli, store, tenant):
    asked = request(tenant)
    await stored(store, asked)
    assert "for good" in cli("purge", "--tenant", tenant, stdin="n\n", code=1).err
    assert await served(store, asked)
    assert "name it" in cli("purge", "--model", "m", "--yes", code=1).err


async def test_an_answer_begun_before_a_purge_by_document_is_not_stored(cli, store, tenant):
    asked = request(tenant, documents=(DOCUMENT,))
    made = await stored(store, asked)
    begun = await store.snapshot(made.scope, asked.documents)
    cli("purge", "--tenant", tenant, "--document", "fees.pdf", "--yes")
    assert await store.put(made, begun) == "document_changed"


async def test_erasing_a_person_leaves_nothing_of_them(cli, store, server, tenant):
    mine = request(tenant, principal="ann", documents=(DOCUMENT,))
    other = request(tenant, principal="bob")
    await stored(store, mine)
    await stored(store, mine.replace(sharing="tenant"))
    await stored(store, other)
    until = NOW.replace(year=2032)
    await store.remember(
        tenant, "conversation", "c", {"said": "x"}, now=NOW, expire_at=until, principal="ann"
    )
    assert cli("purge", "--tenant", tenant, "--principal", "ann", "--yes", "--json").json == {
        "entries": {tenant: 2},
        "total": 2,
        "dry_run": False,
    }
    assert await store.recall(tenant, "conversation", "c", now=NOW) is None
    assert await served(store, other)
    with server.client() as client:
        left = client.keys(f"{places.prefix(tenant)}*")
        dumped = b"".join(client.dump(key) or b"" for key in left)
    assert b"ann" not in dumped
    assert b"bob" in dumped, "the control"


async def test_erasing_a_tenant_leaves_only_its_clock_and_the_audit(cli, store, server, tenant):
    await stored(store, request(tenant, documents=(DOCUMENT,)))
    await store.remember(tenant, "guard", "g", {}, now=NOW, expire_at=NOW.replace(year=2032))
    cli("purge", "--tenant", tenant, "--erase", "--yes")
    prefix = places.prefix(tenant)
    with server.client() as client:
        left = {key.decode().removeprefix(prefix) for key in client.keys(f"{prefix}*")}
    assert left == {"clock", "audit"}


async def test_promote_puts_a_waiting_entry_into_service_also_by_likeness(cli, store, tenant):
    asked = request(tenant, sharing="tenant", principal="ann")
    made = await stored(store, asked, state="quarantined")
    bob = asked.replace(principal="bob")
    assert not await served(store, bob)
    cli("promote", "--tenant", tenant, made.id)
    assert await served(store, bob) == [made.id]
    if store.has_vectors:
        scope = made.scope
        assert await store.find_similar(scope, made.vector, embedder="E", now=NOW, limit=1)
    assert "no entry" in cli("promote", "--tenant", tenant, made.id, code=1).err


async def test_what_is_purged_in_postgres_is_gone_from_redis_though_nobody_listens(
    bare_cli, redis_bare, postgres, tenant
):
    bare_cli.env = {
        "RAGCACHE_STORE__KIND": '["redis", "postgres"]',
        "RAGCACHE_STORE__REDIS_DSN": redis_bare.dsn,
        "RAGCACHE_STORE__DSN": postgres.app,
        "RAGCACHE_STORE__OPS_DSN": postgres.ops,
    }
    truth = PostgresStore(postgres.app, pool_wait_s=10, lookup_timeout_s=10)
    front = RedisCopies(redis_bare.dsn, pool_wait_s=10, lookup_timeout_s=10)
    pair = PairStore(front, truth, dsn=postgres.app)
    await pair.open()
    asked = request(tenant, principal="ann")
    await stored(pair, asked)
    await pair.close()
    with redis_bare.client() as client:
        assert client.keys(f"{places.prefix(tenant)}e:*")
        bare_cli("purge", "--tenant", tenant, "--principal", "ann", "--yes")
        assert not client.keys(f"{places.prefix(tenant)}e:*")
    assert bare_cli("doctor", "--json").json["ok"]
