"""What Postgres does and does not do for isolation: each pitfall measured on our own schema."""

from __future__ import annotations

import contextlib

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from ragcache.store.roles import Dsns
from ragcache.types import TenantId
from tests.store_samples import NOW, entry, request

Refused = psycopg.errors.InsufficientPrivilege


@pytest.fixture
async def two(store, tenant) -> tuple[str, str]:
    """Two tenants with one entry each."""
    names = (tenant, TenantId(f"{tenant}-b"))
    for name in names:
        made = entry(request(name))
        assert await store.put(made, await store.snapshot(made.scope, ())) == ""
    return names


@contextlib.contextmanager
def as_tenant(dsn: str, tenant: str | None):
    """Connect, and name a tenant for one transaction."""
    with psycopg.connect(dsn) as connection:
        if tenant is not None:
            connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        yield connection


def rows(connection) -> list[str]:
    return [t for (t,) in connection.execute("SELECT tenant FROM ragcache.entry").fetchall()]


def test_a_tenant_sees_its_own_rows_and_no_tenant_sees_none(postgres: Dsns, two):
    with as_tenant(postgres.app, two[0]) as connection:
        assert rows(connection) == [two[0]]
    for nobody in (None, "", "nobody"):
        with as_tenant(postgres.app, nobody) as connection:
            assert rows(connection) == []


def test_the_setting_is_empty_after_its_transaction_and_a_nameless_tenant_cannot_be(
    postgres: Dsns, two
):
    with psycopg.connect(postgres.app, autocommit=True) as connection:
        with connection.transaction():
            connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (two[0],))
            assert rows(connection) == [two[0]]
        left = connection.execute("SELECT current_setting('ragcache.tenant', true)").fetchone()
        assert left == ("",)
        assert rows(connection) == []
        with pytest.raises((psycopg.errors.CheckViolation, Refused)):
            connection.execute(
                "INSERT INTO ragcache.namespace (tenant, namespace) VALUES ('', 'n')"
            )


def test_outside_a_transaction_the_local_setting_is_lost_at_once(postgres: Dsns, two):
    with psycopg.connect(postgres.app, autocommit=True) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (two[0],))
        assert rows(connection) == []


def test_the_owner_is_held_to_the_policies_too(postgres: Dsns, two):
    with as_tenant(postgres.admin, two[0]) as connection:
        connection.execute("SET LOCAL ROLE ragcache_owner")
        assert rows(connection) == [two[0]]
    with as_tenant(postgres.admin, None) as connection:
        connection.execute("SET LOCAL ROLE ragcache_owner")
        assert rows(connection) == []


def test_the_ops_role_sees_entries_of_the_tenant_it_named_and_the_names_of_all(postgres: Dsns, two):
    with as_tenant(postgres.ops, two[0]) as connection:
        assert rows(connection) == [two[0]]
        names = connection.execute("SELECT DISTINCT tenant FROM ragcache.namespace").fetchall()
        assert {(name,) for name in two} <= set(names)
    with as_tenant(postgres.app, two[0]) as connection:
        names = connection.execute("SELECT DISTINCT tenant FROM ragcache.namespace").fetchall()
        assert names == [(two[0],)]


def test_a_session_setting_on_a_pooled_connection_leaks_and_ours_does_not(postgres: Dsns, two):
    """The control: what would happen with SET, which nothing here uses."""
    with ConnectionPool(postgres.app, min_size=1, max_size=1, open=True) as pool:
        with pool.connection() as connection:
            connection.execute("SELECT set_config('ragcache.tenant', %s, false)", (two[0],))
        with pool.connection() as connection:
            assert rows(connection) == [two[0]], "the control shows no leak"
            connection.execute("RESET ragcache.tenant")
        with pool.connection() as connection:
            connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (two[0],))
        with pool.connection() as connection:
            assert rows(connection) == []


def test_through_a_transaction_pooler_a_session_setting_leaks_and_ours_does_not(
    pgbouncer: str, two
):
    def connect():
        return psycopg.connect(pgbouncer, autocommit=True, prepare_threshold=None)

    with connect() as one, connect() as other:
        one.execute("SELECT set_config('ragcache.tenant', %s, false)", (two[0],))
        seen = [rows(other) for _ in range(4)]
        assert [two[0]] in seen, "the control shows no leak"
        for _ in range(4):  # put both server connections right again
            one.execute("RESET ragcache.tenant")
            with one.transaction(), other.transaction():
                one.execute("SELECT set_config('ragcache.tenant', '', false)")
                other.execute("SELECT set_config('ragcache.tenant', '', false)")
        with one.transaction():
            one.execute("SELECT set_config('ragcache.tenant', %s, true)", (two[0],))
            assert rows(one) == [two[0]]
        assert [rows(other) for _ in range(4)] == [[]] * 4


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE ragcache.entry",
        "CREATE TABLE ragcache.mine (x int)",
        "ALTER TABLE ragcache.entry DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant_guard ON ragcache.entry",
        "SET ROLE ragcache_owner",
        "SET ROLE ragcache_ops",
        "SET SESSION AUTHORIZATION postgres",
        "SELECT * FROM ragcache.audit",
        "UPDATE ragcache.audit SET reason = ''",
        "DELETE FROM ragcache.audit",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT ragcache.documents_changed('x', ARRAY['y'])",
        "CREATE INDEX ON ragcache.entry (tenant)",
        "CREATE TRIGGER mine BEFORE INSERT ON ragcache.entry EXECUTE FUNCTION ragcache.tell()",
    ],
)
def test_the_app_role_may_not(postgres: Dsns, statement):
    with psycopg.connect(postgres.app) as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute(statement.encode())
    assert isinstance(refused.value, (Refused, psycopg.errors.UndefinedFunction))


def test_switching_the_policies_off_is_an_error_not_a_way_around(postgres: Dsns, two):
    with as_tenant(postgres.app, two[0]) as connection:
        connection.execute("SET LOCAL row_security = off")
        with pytest.raises(Refused, match="row-level security"):
            rows(connection)


def test_copy_into_a_guarded_table_is_refused(postgres: Dsns, two):
    with (
        as_tenant(postgres.app, two[0]) as connection,
        pytest.raises(psycopg.errors.FeatureNotSupported),
        connection.cursor().copy("COPY ragcache.document (tenant, name) FROM STDIN") as copy,
    ):
        copy.write_row(("x", "y"))


def test_rows_of_others_can_be_neither_written_moved_nor_guessed(postgres: Dsns, two):
    mine, theirs = two
    with as_tenant(postgres.app, mine) as connection:
        with pytest.raises(Refused), connection.transaction():
            connection.execute(
                "INSERT INTO ragcache.document (tenant, name) VALUES (%s, 'x')", (theirs,)
            )
        with pytest.raises(Refused), connection.transaction():
            connection.execute("UPDATE ragcache.entry SET tenant = %s", (theirs,))
        same = connection.execute("DELETE FROM ragcache.entry WHERE tenant = %s", (theirs,))
        assert same.rowcount == 0
        # A foreign key to another tenant's entry would tell whether it exists.
        with pytest.raises(psycopg.errors.ForeignKeyViolation), connection.transaction():
            connection.execute(
                "INSERT INTO ragcache.entry_use (tenant, entry, last_hit_at)"
                " VALUES (%s, 'entry-of-somebody-else', %s)",
                (mine, NOW),
            )


def test_kept_plans_serve_three_hundred_changes_of_tenant(postgres: Dsns, two):
    text = "SELECT tenant FROM ragcache.entry WHERE normal_key <> %s"
    with psycopg.connect(postgres.app, autocommit=True, prepare_threshold=0) as connection:
        connection.execute("SET plan_cache_mode = force_generic_plan")
        for n in range(300):
            with connection.transaction():
                connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (two[n % 2],))
                assert connection.execute(text, ("x",)).fetchall() == [(two[n % 2],)]


def test_statistics_and_cheap_functions_show_nothing(postgres: Dsns, two):
    with psycopg.connect(postgres.admin, autocommit=True) as connection:
        connection.execute("ANALYZE ragcache.entry")
    with as_tenant(postgres.app, two[0]) as connection:
        shown = connection.execute(
            "SELECT count(*) FROM pg_stats WHERE schemaname = 'ragcache' AND tablename = 'entry'"
        ).fetchone()
        assert shown == (0,)
        connection.execute(
            "CREATE FUNCTION pg_temp.peek(text) RETURNS boolean COST 0.0001 LANGUAGE plpgsql AS"
            " $$BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END$$"
        )
        heard: list[str] = []
        connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
        connection.execute("SELECT FROM ragcache.entry WHERE pg_temp.peek(tenant)")
        assert heard == [f"saw {two[0]}"]


def test_injected_sql_could_name_any_tenant_which_is_why_nothing_is_pasted_into_sql(
    postgres: Dsns, two
):
    """The limit of the wall: it stands against forgotten conditions, not against foreign SQL."""
    with as_tenant(postgres.app, two[0]) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (two[1],))
        assert rows(connection) == [two[1]]
    hostile = f"x' OR set_config('ragcache.tenant', '{two[1]}', true) IS NOT NULL --"
    with as_tenant(postgres.app, two[0]) as connection:
        found = connection.execute(
            "SELECT tenant FROM ragcache.entry WHERE question = %s", (hostile,)
        ).fetchall()
        assert found == []
        assert rows(connection) == [two[0]]
