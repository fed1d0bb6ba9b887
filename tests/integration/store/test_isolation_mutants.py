"""Each known way to lose isolation is planted, and must be noticed.

Twice where the fault is in the database: the start-up check refuses to serve, and with the check
taken out of the way the random operations of the isolation test find the leak, so that they can.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType

import psycopg
import pytest

from ragcache.errors import IsolationError
from ragcache.store import near, postgres, session, turns
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import APP, OWNER, Dsns
from tests.isolation_world import World, hunt

OPERATIONS = 5_000


@contextmanager
def open_wall(dsns: Dsns) -> Iterator[None]:
    """Take row-level security away; the statements stay as they are."""
    with psycopg.connect(dsns.admin, autocommit=True) as connection:
        for table in ("entry", "lineage", "lineage_name", "document", "namespace", "entry_use"):
            connection.execute(f"ALTER TABLE ragcache.{table} DISABLE ROW LEVEL SECURITY")
    yield


@contextmanager
def statements(dsns: Dsns, *statements: str, undo: tuple[str, ...] = ()) -> Iterator[None]:
    with psycopg.connect(dsns.admin, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
        try:
            yield
        finally:
            for statement in undo:
                connection.execute(statement)


def owner_serves_without_force(dsns: Dsns):
    return statements(
        dsns,
        f"ALTER ROLE {OWNER} LOGIN PASSWORD 'test-app'",
        "ALTER TABLE ragcache.entry NO FORCE ROW LEVEL SECURITY",
        undo=(f"ALTER ROLE {OWNER} NOLOGIN",),
    )


def app_bypasses_policies(dsns: Dsns):
    return statements(dsns, f"ALTER ROLE {APP} BYPASSRLS", undo=(f"ALTER ROLE {APP} NOBYPASSRLS",))


def second_permissive_policy(dsns: Dsns):
    return statements(
        dsns,
        "DROP POLICY tenant_guard ON ragcache.entry",
        "CREATE POLICY tenant_guard ON ragcache.entry"
        " USING (tenant = nullif(current_setting('ragcache.tenant', true), ''))",
        "CREATE POLICY reporting ON ragcache.entry USING (true)",
    )


def partition_without_policies(dsns: Dsns):
    return statements(
        dsns,
        "CREATE TABLE ragcache.entry_old () INHERITS (ragcache.entry)",
        "INSERT INTO ragcache.entry_old (tenant, id, principal, sharing, namespace, partition,"
        " exact_key, normal_key, question, answer, state, created_at, expire_at, changed_at, epoch)"
        " VALUES ('somebody', 'x', 'p', 'g', 'n', 'p', 'e', 'n', 'q', '{}', 'live',"
        " now(), now(), now(), 0)",
        f"GRANT SELECT ON ragcache.entry_old TO {APP}",
    )


def key_without_tenant(dsns: Dsns):
    return statements(
        dsns,
        "ALTER TABLE ragcache.entry DROP CONSTRAINT entry_pkey CASCADE",
        "ALTER TABLE ragcache.entry ADD PRIMARY KEY (id)",
    )


def view_of_a_superuser(dsns: Dsns):
    return statements(
        dsns,
        "CREATE VIEW ragcache.entries AS SELECT tenant, id FROM ragcache.entry",
        f"GRANT SELECT ON ragcache.entries TO {APP}",
    )


PLANTED: list[tuple[Callable, str]] = [
    (owner_serves_without_force, "owns the tables"),
    (app_bypasses_policies, "BYPASSRLS"),
    (second_permissive_policy, "no restrictive tenant policy"),
    (partition_without_policies, "entry_old"),
    (key_without_tenant, "entry_pkey"),
    (view_of_a_superuser, "entries"),
]


def dsn_of(plant: Callable, dsns: Dsns) -> str:
    if plant is owner_serves_without_force:
        return dsns.app.replace(APP, OWNER)
    return dsns.app


async def look(dsns: Dsns, dsn: str, kind: type[PostgresStore] = PostgresStore):
    """Run random operations without the start-up check; return the leak that was found."""
    store = kind(dsn, pool_size=2, pool_wait_s=10, lookup_timeout_s=10)
    store._checked = True
    await store.open()
    try:
        return await hunt(World([store], dsns.admin), OPERATIONS)
    finally:
        await store.close()


async def test_without_a_mutant_nothing_is_found(fresh_database: Dsns):
    store = PostgresStore(fresh_database.app, pool_size=2, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    world = World([store], fresh_database.admin)
    assert await hunt(world, 400) is None
    assert world.hits > 20
    await store.close()


@pytest.mark.parametrize(("plant", "said"), PLANTED, ids=lambda p: getattr(p, "__name__", ""))
async def test_a_fault_in_the_database_is_refused_and_found(fresh_database: Dsns, plant, said):
    with plant(fresh_database):
        dsn = dsn_of(plant, fresh_database)
        store = PostgresStore(dsn, pool_wait_s=10)
        with pytest.raises(IsolationError, match=said):
            await store.open()
        await store.close()
        assert await look(fresh_database, dsn) is not None


async def test_a_setting_that_outlives_its_transaction_is_refused_and_found(
    fresh_database: Dsns, monkeypatch
):
    planted = {
        name: text.replace("%(tenant)s, true)", "%(tenant)s, false)")
        for name, text in session._BEGIN.items()
    }
    monkeypatch.setattr(session, "_BEGIN", MappingProxyType(planted))
    store = PostgresStore(fresh_database.app, pool_wait_s=10)
    with pytest.raises(IsolationError, match="stays set on the connection"):
        await store.open()
    await store.close()
    assert "visible without a tenant" in str(await look(fresh_database, fresh_database.app))


@pytest.mark.parametrize("name", ["find_exact", "find_near"])
async def test_a_tenant_that_is_only_in_the_embedded_text_is_found(
    fresh_database: Dsns, monkeypatch, name
):
    """With the wall down, the statements' own condition is all there is: it must be missed."""
    loose = dict(postgres._LOOKUP)
    loose[name] = loose[name].replace("e.tenant = %(tenant)s", "true", 1)
    assert loose[name] != postgres._LOOKUP[name]
    with open_wall(fresh_database):
        assert not await reads_foreign(fresh_database)
        monkeypatch.setattr(postgres, "_LOOKUP", MappingProxyType(loose))
        monkeypatch.setattr(near, "_SQL", MappingProxyType(loose))
        assert await reads_foreign(fresh_database)


async def reads_foreign(dsns: Dsns) -> bool:
    """Return whether finding and storing alone, without reading around them, leak."""
    store = PostgresStore(dsns.app, pool_size=2, pool_wait_s=10, lookup_timeout_s=10)
    store._checked = True
    await store.open()
    world = World([store], dsns.admin)
    world.read_all = world.read_stray = world.write_foreign = _nothing
    leak = await hunt(world, 300)
    await store.close()
    return leak is not None


async def _nothing(*_: object) -> None:
    """Stand in for what would see through the open wall anyway."""


async def test_a_lock_without_its_scope_is_found(fresh_database: Dsns, monkeypatch):
    monkeypatch.setattr("tests.isolation_world.lock_number", lambda scope, key: hash(key))
    assert "share a lock" in str(await look(fresh_database, fresh_database.app))


async def test_names_joined_without_framing_are_found(fresh_database: Dsns, monkeypatch):
    monkeypatch.setattr(turns, "encode", lambda parts: ":".join(parts).encode())
    assert "principals share a lock" in str(await look(fresh_database, fresh_database.app))


class Remembering(PostgresStore):
    """Keeps what it has found in memory, and forgets for whom."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._found = {}

    async def find_exact(self, scope, keys, *, now):
        if keys.exact not in self._found:
            self._found[keys.exact] = await super().find_exact(scope, keys, now=now)
        return self._found[keys.exact]


async def test_a_memory_shared_between_tenants_is_found(fresh_database: Dsns):
    assert await look(fresh_database, fresh_database.app, Remembering) is not None


async def test_every_statement_names_the_tenant_of_each_table_it_reads(
    fresh_database: Dsns, monkeypatch
):
    seen: set[str] = set()
    execute = psycopg.AsyncConnection.execute

    async def noted(self, query, *arguments, **options):
        seen.add(query.decode() if isinstance(query, bytes) else query)
        return await execute(self, query, *arguments, **options)

    store = PostgresStore(fresh_database.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    monkeypatch.setattr(psycopg.AsyncConnection, "execute", noted)
    world = World([store], fresh_database.admin)
    for what in range(2):
        for name in ("put", "find", "find_similar", "change"):
            await world.run(name, store, 0, what)
    await world.run("bump", store, 0)
    await world.run("purge", store, 0)
    await store.close()
    reading = [text for text in seen if re.search(r"(FROM|JOIN|UPDATE) ragcache\.", text)]
    assert len(reading) >= 8
    for text in reading:
        for table, alias in re.findall(
            r"(?:FROM|JOIN|UPDATE|USING)\s+ragcache\.(\w+)(?:\s+AS)?\s+(\w+)", text
        ):
            assert f"{alias}.tenant = %(tenant)s" in text, f"{table} {alias} in:\n{text}"
