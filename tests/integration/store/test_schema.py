"""The schema: equal to its migrations, closed by default, safe to upgrade."""

from __future__ import annotations

import re
import threading
from importlib.resources import files

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from ragcache.errors import MigrationError, StoreError
from ragcache.store import migrations, roles
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from tests.fixtures_postgres import initialise_for_tests
from tests.store_samples import NOW, keys, request, scope

#: Tables without a tenant: which migrations were applied.
WITHOUT_TENANT = {"migration"}

CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attstorage, a.attgenerated, pg_get_expr(d.adbin, d.adrelid)
          FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
          LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = 'ragcache'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped""",
    "tables": """
        SELECT relname, relkind, relrowsecurity, relforcerowsecurity, reloptions, relacl::text,
               relowner::regrole::text, obj_description(oid)
          FROM pg_class WHERE relnamespace = 'ragcache'::regnamespace""",
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
         WHERE c.relnamespace = 'ragcache'::regnamespace""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
         WHERE connamespace = 'ragcache'::regnamespace""",
    "policies": """
        SELECT polrelid::regclass::text, polname, polcmd, polpermissive,
               polroles::regrole[]::text, pg_get_expr(polqual, polrelid),
               pg_get_expr(polwithcheck, polrelid)
          FROM pg_policy""",
    "functions": """
        SELECT proname, pg_get_functiondef(oid), proacl::text, proowner::regrole::text
          FROM pg_proc WHERE pronamespace = 'ragcache'::regnamespace""",
}


def catalogue(dsn: str) -> dict[str, list]:
    """Return everything that makes up the schema, in an order of its own."""
    with psycopg.connect(dsn) as connection:
        return {
            name: sorted(connection.execute(text).fetchall(), key=str)
            for name, text in CATALOGUE.items()
        }


def test_schema_sql_equals_all_migrations(fresh_database: Dsns, bare_database: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "apply", lambda dsn: None)
        roles.initialise(bare_database, app_password="test-app", ops_password="test-ops")
    text = (files("ragcache.store") / "sql" / "schema.sql").read_text("utf-8")
    assert text.split("\n\n", 1)[1] == migrations.sql(), "make it anew: `migrations.sql()`"
    with psycopg.connect(bare_database, autocommit=True) as connection:
        connection.execute(text.encode())
    expected, made = catalogue(fresh_database.admin), catalogue(bare_database)
    for name in CATALOGUE:
        assert made[name] == expected[name], name


def test_every_table_forces_policies_and_begins_its_keys_with_the_tenant(postgres: Dsns):
    with psycopg.connect(postgres.admin) as connection:
        tables = connection.execute(
            "SELECT oid, relname, relrowsecurity AND relforcerowsecurity FROM pg_class"
            " WHERE relnamespace = 'ragcache'::regnamespace AND relkind IN ('r', 'p')"
        ).fetchall()
        assert len(tables) > 5
        for oid, name, forced in tables:
            if name in WITHOUT_TENANT:
                continue
            assert forced, f"{name} does not force row-level security"
            indexes = connection.execute(
                "SELECT i.indexrelid::regclass::text, a.attname FROM pg_index i"
                " LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
                " WHERE i.indrelid = %s AND i.indpred IS NULL",
                (oid,),
            ).fetchall()
            assert indexes
            assert {first for _, first in indexes} == {"tenant"}, name
            foreign = connection.execute(
                "SELECT a.attname FROM pg_constraint c JOIN pg_attribute a"
                " ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]"
                " WHERE c.conrelid = %s AND c.contype = 'f'",
                (oid,),
            ).fetchall()
            assert {first for (first,) in foreign} <= {"tenant"}, name


def test_tables_could_be_distributed_by_tenant_as_they_are(postgres: Dsns):
    """What Citus asks of tables that stand together: one type of key, in every constraint."""
    with psycopg.connect(postgres.admin) as connection:
        tenants = connection.execute(
            "SELECT c.relname, format_type(a.atttypid, a.atttypmod), o.collname, a.attnotnull"
            "  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            "  LEFT JOIN pg_collation o ON o.oid = a.attcollation"
            " WHERE c.relnamespace = 'ragcache'::regnamespace AND c.relkind IN ('r', 'p')"
            "   AND a.attname = 'tenant'"
        ).fetchall()
        assert {row[1:] for row in tenants} == {("text", "C", True)}
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'ragcache'::regnamespace"
            " AND relkind IN ('r', 'p')"
        ).fetchall()
        assert {name for (name,) in tables} - {row[0] for row in tenants} == WITHOUT_TENANT
        constraints = connection.execute(
            "SELECT k.conrelid::regclass::text, k.contype::text, k.conname,"
            "       (SELECT array_agg(a.attname ORDER BY n.i) FROM unnest(k.conkey)"
            "          WITH ORDINALITY AS n (attnum, i) JOIN pg_attribute a"
            "            ON a.attrelid = k.conrelid AND a.attnum = n.attnum),"
            "       (SELECT array_agg(a.attname ORDER BY n.i) FROM unnest(k.confkey)"
            "          WITH ORDINALITY AS n (attnum, i) JOIN pg_attribute a"
            "            ON a.attrelid = k.confrelid AND a.attnum = n.attnum)"
            "  FROM pg_constraint k WHERE k.connamespace = 'ragcache'::regnamespace"
            "   AND k.contype IN ('p', 'u', 'x', 'f')"
        ).fetchall()
        for table, kind, name, columns, referred in constraints:
            if table.removeprefix("ragcache.") in WITHOUT_TENANT:
                continue
            assert columns[0] == "tenant", (table, name)
            assert kind != "f" or referred[0] == "tenant", (table, name)
    for path in (files("ragcache.store") / "sql").iterdir():
        if path.name.endswith(".sql"):
            moved = re.search(r"\bSET\s+tenant\s*=", path.read_text("utf-8"))
            assert not moved, f"{path.name} would move a row to another node"


def test_migrating_twice_changes_nothing(fresh_database: Dsns):
    before = catalogue(fresh_database.admin)
    assert migrations.apply(fresh_database.ops) == ()
    initialise_for_tests(fresh_database.admin)
    assert catalogue(fresh_database.admin) == before
    assert migrations.check(fresh_database.ops) == ()


def first_version(dsn: str) -> Dsns:
    """Make the database as the first version of the schema had it."""
    with pytest.MonkeyPatch.context() as patch:
        apply = migrations.apply
        patch.setattr(migrations, "apply", lambda dsn: apply(dsn, upto=1))
        return initialise_for_tests(dsn)


async def test_an_older_schema_is_named_and_upgraded_with_its_entries(bare_database: str, tenant):
    dsns = first_version(bare_database)
    asked = request(tenant)
    with psycopg.connect(dsns.app) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        connection.execute(
            "INSERT INTO ragcache.entry (tenant, id, principal, sharing, namespace, partition,"
            " exact_key, normal_key, question, answer, state, created_at, expire_at, changed_at,"
            " epoch) VALUES (%s, 'old', %s, %s, 'default', %s, %s, %s, 'q', '{\"text\": \"a\"}',"
            " 'live', %s, %s + interval '1 day', %s, 0)",
            (
                tenant,
                tenant,
                scope(asked).group,
                scope(asked).partition,
                keys(asked).exact,
                keys(asked).normal,
                NOW,
                NOW,
                NOW,
            ),
        )
    lacking = migrations.check(dsns.ops)
    assert [step.number for step in lacking] == [m.number for m in migrations.migrations()[1:]]
    store = PostgresStore(dsns.app, pool_wait_s=10, lookup_timeout_s=10)
    with pytest.raises(MigrationError, match=r"lacks 0002_\w+.*ragcache migrate"):
        await store.open()
    assert migrations.apply(dsns.ops) == lacking
    (found,) = await store.find_exact(scope(asked), keys(asked), now=NOW)
    assert found.entry.id == "old"
    await store.close()


@pytest.mark.parametrize("role", ["admin", "ops"])
async def test_the_printed_script_is_all_that_an_upgrade_needs(bare_database: str, role):
    """Its rows in the book too: the store opens, and nothing is left to migrate."""
    dsns = first_version(bare_database)
    script = migrations.sql(migrations.check(dsns.ops))
    with psycopg.connect(getattr(dsns, role), autocommit=True) as connection:
        connection.execute(script.encode())
    assert migrations.check(dsns.ops) == ()
    assert migrations.apply(dsns.ops) == ()
    store = PostgresStore(dsns.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    await store.close()


async def test_a_newer_schema_still_serves_this_version(fresh_database: Dsns, tenant):
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("INSERT INTO ragcache.migration VALUES (9999, 'later', 'x')")
        connection.execute("ALTER TABLE ragcache.entry ADD COLUMN later text")
    store = PostgresStore(fresh_database.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    assert not await store.find_exact(scope(request(tenant)), keys(request(tenant)), now=NOW)
    await store.close()


def test_a_changed_migration_is_refused(fresh_database: Dsns):
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("UPDATE ragcache.migration SET checksum = 'x' WHERE number = 1")
    with pytest.raises(MigrationError, match="0001_answers was applied with another text"):
        migrations.check(fresh_database.ops)


def test_a_migration_gives_way_to_those_who_hold_the_table(bare_database: str, monkeypatch):
    dsns = first_version(bare_database)
    step = migrations.Migration(
        number=2, name="slow", text="ALTER TABLE ragcache.entry ADD COLUMN later text"
    )
    monkeypatch.setattr(migrations, "pending", lambda known, applied: (step,))
    with psycopg.connect(dsns.admin) as holder:
        holder.execute("SELECT FROM ragcache.entry")
        with pytest.raises(MigrationError, match="gave way"):
            migrations.apply(dsns.ops, lock_timeout_s=0.1)
    assert migrations.apply(dsns.ops, lock_timeout_s=5) == (step,)


def test_two_migrations_at_a_time_wait_for_each_other(bare_database: str):
    dsns = first_version(bare_database)
    outcomes = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(len(migrations.apply(dsns.ops))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [0, 0, len(migrations.migrations()) - 1]


def test_the_app_role_may_not_migrate(fresh_database: Dsns, monkeypatch):
    step = migrations.Migration(number=9, name="mine", text="SELECT 1")
    monkeypatch.setattr(migrations, "migrations", lambda: (step,))
    with pytest.raises(MigrationError, match="ops DSN"):
        migrations.apply(fresh_database.app)


def test_servers_that_will_not_do_are_named():
    assert "too old" in roles.server_fault(140011, "14.11", "0.8.0")
    assert "no pgvector" in roles.server_fault(160000, "16.0", None)
    assert "pgvector 0.7.4 is too old" in roles.server_fault(160000, "16.0", "0.7.4")
    assert roles.server_fault(150000, "15.0", "0.8.0") == ""
    assert roles.server_fault(180000, "18", "0.10.1") == ""


def test_dsns_hide_their_passwords():
    dsns = Dsns(admin="password=geheim", app="password=geheim", ops="password=geheim")
    assert "geheim" not in repr(dsns) + str(dsns)


def test_initialising_says_when_the_extension_cannot_be_had(bare_database: str):
    with psycopg.connect(bare_database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS ragcache_test_poor")
        connection.execute("CREATE ROLE ragcache_test_poor LOGIN PASSWORD 'poor'")
    poor = make_conninfo(bare_database, user="ragcache_test_poor", password="poor")
    with pytest.raises(StoreError, match="CREATE EXTENSION vector"):
        roles.initialise(poor)
    with psycopg.connect(bare_database, autocommit=True) as connection:
        connection.execute("DROP ROLE ragcache_test_poor")
