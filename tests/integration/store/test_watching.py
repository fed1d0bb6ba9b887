"""A trigger on the team's own document table invalidates in the team's own transaction."""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import pytest

from ragcache.errors import StoreError
from ragcache.store.notices import notices, parsed
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from ragcache.store.watching import Shape, unwatch, watch
from ragcache.types import Document, TenantId
from tests.store_samples import NOW, entry, request

#: The tables as langchain-postgres (both generations) and llama-index create them.
TABLES = {
    "langchain_pg_embedding": (
        (
            "CREATE TABLE langchain_pg_embedding (id varchar PRIMARY KEY, collection_id uuid,"
            " embedding vector, document varchar, cmetadata jsonb)"
        ),
        (
            "INSERT INTO langchain_pg_embedding VALUES (%(id)s, NULL, '[1,2]', %(text)s,"
            " jsonb_build_object('tenant', %(tenant)s::text, 'source', 'handbook'))"
        ),
        "cmetadata->>'tenant'",
        "document",
        "id",
    ),
    "vectors": (
        (
            "CREATE TABLE vectors (langchain_id uuid PRIMARY KEY, content text NOT NULL,"
            " embedding vector(2) NOT NULL, langchain_metadata json)"
        ),
        (
            "INSERT INTO vectors VALUES (%(id)s::uuid, %(text)s, '[1,2]',"
            " json_build_object('tenant', %(tenant)s::text))"
        ),
        "langchain_metadata->>'tenant'",
        "content",
        "langchain_id::text",
    ),
    "data_docs": (
        (
            "CREATE TABLE data_docs (id bigserial PRIMARY KEY, text varchar NOT NULL,"
            " metadata_ json, node_id varchar, embedding vector(2), owner_tenant text)"
        ),
        (
            "INSERT INTO data_docs (text, metadata_, node_id, embedding, owner_tenant)"
            " VALUES (%(text)s, '{}', %(id)s, '[1,2]', %(tenant)s)"
        ),
        "owner_tenant",
        "text",
        "node_id",
    ),
}
IDS = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(4)]


@pytest.fixture(params=TABLES)
def table(request, fresh_database: Dsns):
    """A watched document table, owned by a role that knows nothing of ragcache."""
    create, insert, tenant, text, id_ = TABLES[request.param]
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS ragcache_test_team")
        connection.execute("CREATE ROLE ragcache_test_team LOGIN PASSWORD 'team'")
        connection.execute("GRANT CREATE, USAGE ON SCHEMA public TO ragcache_test_team")
        connection.execute("SET ROLE ragcache_test_team")
        connection.execute(create)
        connection.execute("RESET ROLE")
    assert watch(fresh_database.admin, request.param, tenant=tenant).endswith(f'"{request.param}"')
    team = psycopg.connect(
        fresh_database.admin, user="ragcache_test_team", password="team", autocommit=True
    )
    yield team, fresh_database, request.param, insert, text, id_
    team.close()
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("DROP OWNED BY ragcache_test_team CASCADE")
        connection.execute("DROP ROLE ragcache_test_team")


async def answered(store, tenant, *documents):
    made = entry(request(tenant, question=documents[0].text, documents=documents))
    assert await store.put(made, await store.snapshot(made.scope, documents)) == ""
    return made


async def servable(store, *entries):
    found = [await store.find_exact(e.scope, e.keys, now=NOW) for e in entries]
    return [any(c.current for c in candidates) for candidates in found]


async def test_updates_and_deletes_kill_exactly_their_entries(table):
    team, dsns, name, insert, text, id_ = table
    store = PostgresStore(dsns.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    a, b = TenantId("a"), TenantId("b")
    for n, tenant in enumerate((a, a, a, b)):
        team.execute(insert, {"id": IDS[n], "text": f"text {n}", "tenant": tenant})
    documents = [Document(text=f"text {n}", source="handbook", id=IDS[n]) for n in range(4)]
    one, two, three = [await answered(store, a, documents[n]) for n in range(3)]
    other = await answered(store, b, documents[3])
    both = await answered(store, a, Document(text="no id, two sources"), *documents[:2])
    nameless = await answered(store, a, Document(text="text 2"))
    assert await servable(store, one, two, three, other, both, nameless) == [True] * 6

    team.execute(f"UPDATE {name} SET embedding = '[3,4]'")  # the same texts, embedded anew
    assert await servable(store, one, two, three, other, both, nameless) == [True] * 6

    with contextlib.suppress(ZeroDivisionError), team.transaction():
        team.execute(f"DELETE FROM {name} WHERE {id_} = %s", (IDS[0],))
        raise ZeroDivisionError  # a change that was rolled back was none
    assert await servable(store, one) == [True]

    team.execute(f"UPDATE {name} SET {text} = 'new' WHERE {id_} = %s", (IDS[0],))
    assert await servable(store, one, two, three, other, both) == [False, True, True, True, False]

    team.execute(f"DELETE FROM {name} WHERE {id_} = %s", (IDS[2],))
    assert await servable(store, two, three, nameless, other) == [True, False, False, True]

    team.execute(f"TRUNCATE {name}")
    assert await servable(store, two, other) == [False, False]
    await store.close()


async def test_an_answer_from_the_old_text_comes_too_late(table):
    team, dsns, name, insert, text, _ = table
    store = PostgresStore(dsns.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    tenant = TenantId("a")
    team.execute(insert, {"id": IDS[0], "text": "old", "tenant": tenant})
    document = Document(text="old", id=IDS[0])
    made = entry(request(tenant, documents=(document,)))
    begun = await store.snapshot(made.scope, (document,))
    team.execute(f"UPDATE {name} SET {text} = 'new'")
    assert await store.put(made, begun) == "document_changed"
    await store.close()


async def test_the_trigger_leaves_no_tenant_behind_and_shows_no_row(table):
    team, _, name, insert, _, _ = table
    team.execute(insert, {"id": IDS[0], "text": "x", "tenant": "a"})
    with team.transaction():
        team.execute("SELECT set_config('ragcache.tenant', 'mine', true)")
        team.execute(f"DELETE FROM {name}")
        row = team.execute("SELECT current_setting('ragcache.tenant', true)").fetchone()
    assert row == ("mine",)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        team.execute("SELECT * FROM ragcache.document")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        team.execute("SELECT ragcache.documents_changed('a', ARRAY['s'])")


async def test_a_table_can_be_let_go_again(table):
    team, dsns, name, insert, _, _ = table
    unwatch(dsns.admin, name)
    team.execute(insert, {"id": IDS[0], "text": "x", "tenant": "a"})
    team.execute(f"DELETE FROM {name}")
    team.execute(f"TRUNCATE {name}")
    with psycopg.connect(dsns.admin) as connection:
        left = connection.execute(
            "SELECT count(*) FROM pg_proc WHERE proname LIKE 'watch\\_%' ESCAPE '\\'"
        ).fetchone()
    assert left == (0,)


def test_what_cannot_be_watched_says_why(fresh_database: Dsns):
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("CREATE TABLE notes (key int, body text)")
    with pytest.raises(StoreError, match="no table nothing"):
        watch(fresh_database.admin, "nothing", tenant="t")
    with pytest.raises(StoreError, match=r"key, body.*name them"):
        watch(fresh_database.admin, "notes", tenant="'t'")
    with pytest.raises(StoreError, match=r"does not own public\.notes"):
        watch(fresh_database.ops, "public.notes", tenant="'t'")
    with pytest.raises(StoreError, match="tenant="):
        watch(fresh_database.admin, "notes", tenant=" ", shape=Shape(id="key", text="body"))
    watch(fresh_database.admin, "notes", tenant="'only'", shape=Shape(id="key", text="body"))


async def test_invalidations_are_heard_in_other_processes_and_name_no_tenant(
    store, postgres: Dsns, tenant
):
    heard = []

    async def listen():
        async for notice in notices(postgres.app):
            if notice.concerns(tenant):
                heard.append(notice.kind)
            assert tenant not in notice.digest

    listener = asyncio.create_task(listen())
    try:
        async with asyncio.timeout(20):
            while "change" not in heard:  # until the listener is there
                await store.change(tenant, ["s"])
                await asyncio.sleep(0.02)
            await store.bump_epoch(tenant, "default")
            await store.purge(tenant)
            while "purge" not in heard:
                await asyncio.sleep(0.02)
    finally:
        listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listener
    assert set(heard) == {"change", "epoch", "purge"}
    assert parsed("{}") is None
    assert parsed("hello") is None
