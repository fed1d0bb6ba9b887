"""What the ops role does: purge, maintain, reembed, report; one tenant at a time."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta

import numpy as np
import psycopg
import pytest

from ragcache.admission import KeyRing
from ragcache.errors import ConfigError, IsolationError, StoreUnavailableError
from ragcache.factory import RagCache
from ragcache.lookup import Reading
from ragcache.settings import Settings
from ragcache.store import maintenance, purging, reports
from ragcache.store.maintenance import Crowd, maintain, plan_indexes
from ragcache.store.near import Place, near_statement
from ragcache.store.ops import SQL, connected
from ragcache.store.postgres import PostgresStore
from ragcache.store.purging import Selection, erase_principal, erase_tenant, promote, purge, restore
from ragcache.store.queries import queries
from ragcache.store.reembedding import Space, reembed
from ragcache.store.roles import Dsns
from ragcache.store.session import transaction
from ragcache.store.vectors import VECTOR
from ragcache.types import Document, Embedding, TenantId
from tests.fixtures_pipeline import KEYRING
from tests.store_samples import NOW, entry, request, scope, served, stored, unit

pytestmark = pytest.mark.usefixtures("store")


def count(dsns: Dsns, tenant: str, table: str = "entry") -> int:
    with psycopg.connect(dsns.ops) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        counting = f"SELECT count(*) FROM ragcache.{table} WHERE tenant = %s"
        row = connection.execute(counting, (tenant,)).fetchone()
    return row[0]


CRITERIA = [
    ({"model": "m1"}, {"model": "m1"}),
    ({"version": "v1"}, {"version": "v1"}),
    ({"embedder": "E1"}, {"embedder": "E1"}),
    ({"created_at": NOW - timedelta(days=2)}, {"older_than": NOW - timedelta(days=1)}),
]


@pytest.mark.parametrize(("fields", "criterion"), CRITERIA)
async def test_purge_takes_what_was_selected_and_nothing_else(
    store, postgres, tenant, fields, criterion
):
    asked, other = request(tenant, question="gone"), request(tenant, question="stays")
    await stored(store, asked, **fields)
    kept = await stored(store, other)
    chosen = Selection(tenant=tenant, **criterion)
    assert purge(postgres.ops, chosen, dry_run=True).entries == {tenant: 1}
    assert await served(store, asked)
    assert purge(postgres.ops, chosen, reason="upgrade").total == 1
    assert await served(store, asked) == []
    assert await served(store, other) == [kept.id]
    (row,) = reports.audit(postgres.ops, tenant)
    assert (row["action"], row["reason"], row["entries"]) == ("purge", "upgrade", 1)
    assert row["actor"] == "ragcache_ops"


async def test_purge_by_document_also_stops_answers_on_their_way(store, postgres, tenant):
    asked = request(tenant, documents=(Document(text="poison", source="bad", id="b1"),))
    made = await stored(store, asked)
    begun = await store.snapshot(made.scope, asked.documents)
    assert purge(postgres.ops, Selection(tenant=tenant, document="bad"), hard=True).total == 1
    assert count(postgres, tenant) == count(postgres, tenant, "lineage") == 0
    assert await store.put(entry(asked), begun) == "document_changed"


async def test_purge_by_writer_entry_and_namespace(store, postgres, tenant):
    ann = request(tenant, principal="ann")
    bob = request(tenant, principal="bob", namespace="n2")
    await stored(store, ann)
    made = await stored(store, bob)
    assert purge(postgres.ops, Selection(tenant=tenant, writer="ann")).total == 1
    assert "ann" not in str(reports.audit(postgres.ops, tenant))
    assert purge(postgres.ops, Selection(tenant=tenant, namespace="n2"), dry_run=True).total == 1
    assert purge(postgres.ops, Selection(tenant=tenant, entry=made.id)).total == 1
    assert await served(store, ann) == await served(store, bob) == []


async def test_purge_across_tenants_needs_a_criterion(store, postgres, tenant):
    with pytest.raises(ConfigError, match="say what to purge"):
        purge(postgres.ops, Selection())
    others = [TenantId(f"{tenant}-{n}") for n in range(3)]
    for other in others:
        await stored(store, request(other), model=f"old-{tenant}")
    taken = purge(postgres.ops, Selection(model=f"old-{tenant}"))
    assert taken.entries == dict.fromkeys(others, 1)


async def test_what_was_deleted_softly_can_be_restored_until_maintenance_removes_it(
    store, postgres, tenant
):
    asked = request(tenant)
    made = await stored(store, asked)
    purge(postgres.ops, Selection(tenant=tenant))
    assert await served(store, asked) == []
    assert restore(postgres.ops, tenant, made.id)
    assert await served(store, asked) == [made.id]
    purge(postgres.ops, Selection(tenant=tenant))
    maintain(postgres.ops, now=NOW, keep_deleted=timedelta(0))
    assert not restore(postgres.ops, tenant, made.id)


async def test_erasing_a_principal_leaves_no_row_and_no_name(store, postgres, tenant):
    mine = request(tenant, principal="ann", documents=(Document(text="d", source="s"),))
    shared = mine.replace(sharing="tenant")
    other = request(tenant, principal="bob")
    made = await stored(store, mine)
    await stored(store, shared)
    await store.touch(made.scope, made.id, now=NOW)
    await stored(store, other)
    assert erase_principal(postgres.ops, tenant, "ann", dry_run=True).total == 2
    assert erase_principal(postgres.ops, tenant, "ann").total == 2
    assert count(postgres, tenant) == 1
    assert count(postgres, tenant, "entry_use") == count(postgres, tenant, "lineage") == 0
    assert "ann" not in str(reports.audit(postgres.ops, tenant))
    assert await served(store, other)


async def test_erasing_a_tenant_leaves_no_row_of_it_anywhere(store, postgres, tenant):
    asked = request(tenant, documents=(Document(text="d", source="s"),))
    made = await stored(store, asked)
    await store.touch(made.scope, made.id, now=NOW)
    await stored(store, request(TenantId(f"{tenant}-b")))
    begun = await store.snapshot(made.scope, asked.documents)
    with psycopg.connect(postgres.ops) as connection:
        tables = connection.execute(SQL["tables_with"], {"column": "tenant"}).fetchall()
        assert len(tables) >= 6
    assert erase_tenant(postgres.ops, tenant, dry_run=True).total == 1
    assert erase_tenant(postgres.ops, tenant).total == 1
    for (table,) in tables:
        assert count(postgres, tenant, table) == (1 if table == "namespace" else 0), table
    assert count(postgres, f"{tenant}-b") == 1
    assert await store.put(entry(asked), begun) == "epoch"


async def test_erasing_a_principal_reaches_every_table_that_knows_principals(
    store, postgres, tenant
):
    await stored(store, request(tenant, principal="ann"))
    with psycopg.connect(postgres.ops) as connection:
        tables = connection.execute(SQL["tables_with"], {"column": "principal"}).fetchall()
    assert {"entry", "state", "request"} <= {table for (table,) in tables}
    with psycopg.connect(postgres.app) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        connection.execute(
            "INSERT INTO ragcache.state VALUES (%s, 'conversation', 'k', 'ann', '{}', now())",
            (tenant,),
        )
    erase_principal(postgres.ops, tenant, "ann")
    assert count(postgres, tenant, "state") == count(postgres, tenant) == 0


async def test_promotion_puts_a_waiting_entry_into_service_for_the_tenant(store, postgres, tenant):
    asked = request(tenant, sharing="tenant", principal="ann")
    made = await stored(store, asked, state="quarantined")
    bob = asked.replace(principal="bob")
    assert await served(store, bob) == []
    assert promote(postgres.ops, tenant, made.id, reason="read it")
    assert await served(store, bob) == [made.id]
    assert not promote(postgres.ops, tenant, made.id)


async def test_maintenance_removes_what_can_never_be_served_again(store, postgres, tenant):
    document = Document(text="d", source="s")
    kept = request(tenant, question="kept")
    await stored(store, kept)
    await stored(store, request(tenant, question="expired"), ttl_s=1)
    await stored(store, request(tenant, question="changed", documents=(document,)))
    await stored(store, request(tenant, question="epoch", namespace="n2"))
    await store.change(tenant, ["s"])
    await store.bump_epoch(tenant, "n2")
    done = maintain(postgres.ops, now=NOW + timedelta(seconds=1))
    assert done.swept >= 3
    assert count(postgres, tenant) == 1
    assert await served(store, kept)


async def test_maintenance_removes_states_of_those_who_write_no_more(store, postgres, tenant):
    await stored(store, request(tenant))
    for key, hours in (("old", 1), ("new", 9)):
        until = NOW + timedelta(hours=hours)
        await store.remember(tenant, "conversation", key, {}, now=NOW, expire_at=until)
    assert maintain(postgres.ops, now=NOW + timedelta(hours=2)).states >= 1
    assert count(postgres, tenant, "state") == 1


async def test_tables_stop_growing_whatever_is_stored(fresh_database: Dsns, tenant):
    """A flood of other questions over other documents, with the usual upkeep in between."""
    quota, sizes = 25, []
    store = PostgresStore(fresh_database.app, pool_wait_s=10, lookup_timeout_s=10, quota=quota)
    await store.open()
    for flood in range(5):
        for n in range(quota * 3):
            documents = (Document(text=f"d{flood}.{n}", source=f"s{flood}.{n}"),)
            asked = request(tenant, question=f"q{flood}.{n}", documents=documents)
            made = await stored(store, asked, answer={"text": "x" * 500})
            await store.touch(made.scope, made.id, now=NOW)
        maintain(fresh_database.ops, now=NOW, quota=quota)
        with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
            connection.execute(  # as if a day had passed since, for the clean-up of names
                "UPDATE ragcache.document SET changed_at = changed_at - interval '2 days'"
            )
            connection.execute("VACUUM")  # what autovacuum does
            row = connection.execute(
                "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c"
                " WHERE c.relnamespace = 'ragcache'::regnamespace AND c.relkind = 'r'"
            ).fetchone()
        sizes.append(int(row[0]))
        assert count(fresh_database, tenant) <= quota
    await store.close()
    assert count(fresh_database, tenant, "lineage") <= quota
    assert sizes[-1] <= sizes[2] * 1.2, sizes


async def test_documents_that_changed_lately_are_not_forgotten(store, postgres, tenant):
    """Else an answer begun before the change could be stored after the clean-up."""
    document = Document(text="d", source="s")
    asked = request(tenant, documents=(document,))
    begun = await store.snapshot(scope(asked), asked.documents)
    await store.change(tenant, ["s"])
    maintain(postgres.ops, now=NOW)
    assert await store.put(entry(asked), begun) == "document_changed"


async def test_documents_without_entries_are_forgotten_in_time(
    store, postgres, tenant, monkeypatch
):
    await store.change(tenant, ["s"])
    await stored(store, request(tenant))  # a tenant is known by its namespaces
    monkeypatch.setattr(maintenance, "_IN_FLIGHT_MAX", timedelta(0))
    assert maintain(postgres.ops, now=NOW).documents >= 1
    assert count(postgres, tenant, "document") == 0


async def test_one_process_maintains_at_a_time(postgres):
    said: list[str] = []
    with connected(postgres.ops) as other:
        other.execute(SQL["alone"], {"lock": maintenance._LOCK})
        assert maintain(postgres.ops, now=NOW, progress=said.append) == maintenance.Maintained()
    assert said == ["another process is at it"]


async def test_maintenance_goes_on_in_the_background_and_outlives_a_failure(postgres, monkeypatch):
    rounds: list[str] = []

    def one(dsn, **options):
        rounds.append(dsn)
        if len(rounds) == 1:
            raise StoreUnavailableError("down")

    monkeypatch.setattr(maintenance, "maintain", one)
    task = asyncio.create_task(
        maintenance.keep_maintained(postgres.ops, every_s=0.01, clock=lambda: NOW)
    )
    async with asyncio.timeout(10):
        while len(rounds) < 3:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_round_that_is_broken_off_ends_at_once_and_leaves_no_connection(
    postgres, tenant, monkeypatch
):
    """The statement that runs is cancelled on the server: closing waits for no index."""

    def slow(connection, *_):
        connection.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(maintenance, "_apply", slow)
    task = asyncio.create_task(
        maintenance.keep_maintained(postgres.ops, every_s=0.01, clock=lambda: NOW)
    )
    sleeping = (
        "SELECT count(*) FROM pg_stat_activity WHERE usename = 'ragcache_ops'"
        " AND query LIKE 'SELECT pg_sleep(60)%'"
    )
    with psycopg.connect(postgres.admin, autocommit=True) as connection:
        async with asyncio.timeout(20):
            while connection.execute(sleeping).fetchone() != (1,):
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while connection.execute(sleeping).fetchone() != (0,):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("ops", [True, False])
async def test_a_cache_with_an_ops_dsn_maintains_its_store(postgres, monkeypatch, ops):
    rounds: list[dict] = []
    monkeypatch.setattr(maintenance, "maintain", lambda dsn, **options: rounds.append(options))
    settings = Settings.load(
        store={
            "dsn": postgres.app,
            "ops_dsn": postgres.ops if ops else "",
            "maintain_every_s": 0.01,
            "quota": 7,
            "index_at": 9,
        },
        embedding={"model": ""},
        telemetry={"record": False},
    )
    async with RagCache.open(settings):
        if not ops:
            await asyncio.sleep(0.2)
            assert rounds == []
            return
        async with asyncio.timeout(10):
            while len(rounds) < 2:
                await asyncio.sleep(0.01)
    assert (rounds[0]["quota"], rounds[0]["index_at"]) == (7, 9)
    ended = len(rounds)
    await asyncio.sleep(0.1)
    assert len(rounds) == ended


def space_of(vectors, *, keyring=KEYRING, dimensions=16) -> Space:
    """Return a new embedder, which gives these vectors: a function of the texts."""

    def embed(texts):
        return [
            Embedding(text=text, vector=vector)
            for text, vector in zip(texts, vectors(texts), strict=True)
        ]

    return Space(id="E2", dimensions=dimensions, embed=embed, keyring=keyring)


async def signed(store, asked, **fields):
    """Store an answer as the pipeline does: signed."""
    made = KEYRING.sign(entry(asked, **fields))
    assert await store.put(made, await store.snapshot(made.scope, asked.documents)) == ""
    return made


async def test_reembedding_makes_old_entries_servable_again_and_can_be_stopped(
    store, postgres, tenant
):
    made = [await signed(store, request(tenant, question=f"q{n}")) for n in range(7)]
    new = {f"q{n}": unit(0.1 * n, 1.0, dimensions=16) for n in range(7)}
    calls = itertools.count(1)

    def vectors(texts):
        if next(calls) == 2:
            raise RuntimeError("stopped")
        return [new[text] for text in texts]

    space = space_of(vectors)
    with pytest.raises(RuntimeError, match="stopped"):
        reembed(postgres.ops, space, now=NOW, tenant=tenant, batch=3)
    seen = []
    done = reembed(
        postgres.ops,
        space,
        now=NOW,
        tenant=tenant,
        batch=3,
        progress=lambda at, total: seen.append((at, total)),
    )
    assert (done.done, done.skipped, done.refused) == (4, 0, 0)
    assert seen == [(3, 4), (4, 4)]
    found = await store.find_similar(made[0].scope, new["q5"], embedder="E2", now=NOW, limit=1)
    assert found[0].entry.question == "q5"
    assert not await store.find_similar(
        made[0].scope, made[0].vector, embedder="E", now=NOW, limit=1
    )


async def test_a_reembedded_entry_is_read_and_signed_anew(store, postgres, tenant):
    document = Document(text="d", source="s", access={"hr"})
    asked = request(tenant, sharing="tenant", access={"hr"}, documents=(document,))
    made = await signed(store, asked, reading={"vectors": "of the old embedder"}, version="v")
    done = reembed(
        postgres.ops, space_of(lambda texts: [unit(1.0, dimensions=16)]), now=NOW, tenant=tenant
    )
    assert done.done == 1
    for found in (
        await store.find_exact(made.scope, made.keys, now=NOW),
        await store.find_similar(
            made.scope, unit(1.0, dimensions=16), embedder="E2", now=NOW, limit=1
        ),
    ):
        (candidate,) = found
        assert KEYRING.verify(candidate.entry)
        assert candidate.entry.embedder == "E2"
        assert candidate.entry.answer == made.answer
        reading = Reading.from_json(candidate.entry.reading)
        assert reading is not None
        assert reading.text == asked.question
        assert reading.sentence is not None


async def test_reembedding_signs_nothing_that_was_not_genuine(store, postgres, tenant):
    asked = request(tenant)
    made = await signed(store, asked)
    with psycopg.connect(postgres.app) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        connection.execute('UPDATE ragcache.entry SET answer = \'{"text": "poison"}\'')
    space = space_of(lambda texts: [unit(1.0, dimensions=16)] * len(texts))
    assert reembed(postgres.ops, space, now=NOW, tenant=tenant).refused == 1
    (found,) = await store.find_exact(made.scope, made.keys, now=NOW)
    assert not KEYRING.verify(found.entry)
    other = replace(space, keyring=KeyRing({"k2": b"another secret of the tests"}, "k2"))
    assert reembed(postgres.ops, other, now=NOW, tenant=tenant).refused == 1


async def test_reembedding_skips_questions_without_a_sound_vector(store, postgres, tenant):
    await signed(store, request(tenant))
    space = space_of(lambda texts: [np.zeros(16)] * len(texts))
    done = reembed(postgres.ops, space, now=NOW, tenant=tenant)
    assert (done.done, done.skipped) == (0, 1)


def test_index_plan_builds_keeps_and_drops():
    def crowd(name, vectors):
        return Crowd(
            tenant=name, partition="p", embedder="e", dimensions=8, column=VECTOR, vectors=vectors
        )

    new, kept, broken, shrunk = crowd("a", 10), crowd("b", 6), crowd("c", 12), crowd("d", 4)
    plan = plan_indexes(
        [new, kept, broken, shrunk],
        {kept.index: True, broken.index: False, shrunk.index: True, "entry_near_old": True},
        index_at=10,
    )
    assert {c.tenant for c in plan.build} == {"a", "c"}
    assert set(plan.drop) == {broken.index, shrunk.index, "entry_near_old"}


async def test_a_large_partition_gets_an_index_that_its_search_uses(fresh_database: Dsns, tenant):
    store = PostgresStore(fresh_database.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    random = np.random.default_rng(3)
    for n in range(60):
        made = await stored(store, request(tenant, question=f"q{n}"), vector=random.normal(size=16))
    said = []
    done = maintain(fresh_database.ops, now=NOW, index_at=50, progress=said.append)
    assert len(done.built) == 1
    assert any("building" in line for line in said)
    assert maintain(fresh_database.ops, now=NOW, index_at=50).built == ()
    plan = await explain(store, made, random.normal(size=16).astype("f4"))
    assert done.built[0] in plan
    assert await store.purge(tenant) == 60
    assert maintain(fresh_database.ops, now=NOW, index_at=50).dropped == done.built
    await store.close()


@pytest.mark.parametrize(
    "odd", ["o'neill", 'a "b"', "50 % off", "back\\\\slash", "{x} %s %(y)s", "é"]
)
async def test_a_tenant_of_any_name_gets_an_index_and_is_found_by_it(fresh_database: Dsns, odd):
    """The search of an index names its tenant by a constant: no name ends up as SQL."""
    store = PostgresStore(fresh_database.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    random = np.random.default_rng(3)
    vectors = random.normal(size=(60, 16))
    for tenant in (odd, "other"):
        for n, vector in enumerate(vectors):
            asked = request(TenantId(tenant), question=f"q{n}")
            made = await stored(store, asked, vector=vector, embedder=f"E {odd}")
    assert len(maintain(fresh_database.ops, now=NOW, index_at=50).built) == 2
    place = scope(request(TenantId(odd)))
    for _ in range(8):  # more often than a plan is made anew
        found = await store.find_similar(place, vectors[7], embedder=f"E {odd}", now=NOW, limit=1)
        assert [(c.entry.question, c.entry.scope.tenant) for c in found] == [("q7", odd)]
    await store.close()
    with psycopg.connect(fresh_database.admin) as connection:
        ((walks,),) = connection.execute(
            "SELECT sum(idx_scan) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'entry_near_%'"
        ).fetchall()
    assert walks >= 7
    assert made.scope.tenant == "other"


async def explain(store, made, vector):
    """Return the plan of a search of this scope, as it runs."""
    from ragcache.store.rows import scope_values

    values = {
        **scope_values(made.scope),
        "vector": vector,
        "embedder": "E",
        "now": NOW,
        "reach": 5,
    }
    settings = {"timeout_s": 10.0, "purpose": "indexed", "ef_search": "40"}
    async with transaction(store._pool, made.scope.tenant, **settings) as c:
        place = Place(
            tenant=values["tenant"],
            partition=values["partition"],
            embedder="E",
            dimensions=vector.size,
            column=VECTOR,
        )
        statement = near_statement(place, exactly=False, text=queries("lookup")["find_near"])
        rows = await (await c.execute(b"EXPLAIN " + statement, values, prepare=False)).fetchall()
    return "\n".join(line for (line,) in rows)


async def test_the_app_role_can_neither_purge_others_nor_read_the_audit(store, postgres, tenant):
    await stored(store, request(tenant), model=f"old-{tenant}")
    with pytest.raises(IsolationError):
        reports.audit(postgres.app, tenant)
    assert purge(postgres.app, Selection(model=f"old-{tenant}")).total == 0


async def test_statistics_and_inspection_show_what_is_there(store, postgres, tenant):
    asked = request(tenant, documents=(Document(text="d", source="s"),))
    made = await stored(store, asked)
    await store.touch(made.scope, made.id, now=NOW)
    await stored(store, request(tenant, question="old"), ttl_s=1)
    (row,) = reports.stats(postgres.ops, now=NOW + timedelta(seconds=5), tenant=tenant).namespaces
    assert (row.entries, row.live, row.expired, row.hits) == (2, 1, 1, 1)
    assert row.bytes > 0
    assert reports.stats(postgres.ops, now=NOW, tenant=tenant).embedders == {"E": 2}
    await store.change(tenant, ["s"])
    shown = reports.inspect(postgres.ops, tenant, made.id)
    assert shown["question"] == asked.question
    assert shown["answer"] == made.answer
    changed = {name["name"] for name in shown["names"] if name["stored"] != name["now"]}
    assert changed == {"s"}
    assert reports.inspect(postgres.ops, tenant, "nothing") is None
    assert len(reports.entries(postgres.ops, tenant)) == 2


async def test_the_doctor_finds_a_healthy_house_healthy_and_a_broken_one_broken(
    fresh_database: Dsns,
):
    assert all(f.ok for f in await reports.doctor(fresh_database.app, fresh_database.ops))
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("ALTER TABLE ragcache.lineage NO FORCE ROW LEVEL SECURITY")
    (finding,) = [f for f in await reports.doctor(fresh_database.app) if not f.ok]
    assert "ragcache.lineage" in finding.detail
    down = await reports.doctor("host=/nonexistent user=x dbname=x", "host=/nonexistent user=x")
    assert [f.ok for f in down] == [False, False, False]
    assert purging.Selection(tenant="t").criteria() == {}
