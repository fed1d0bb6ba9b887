"""A real Postgres for every test that needs one.

One embedded server for the session, in a folder of its own; `RAGCACHE_TEST_DSN` (a role that may
create roles and databases) uses another server instead. Tests share one database and keep apart
by tenant, as the product does; a test that changes the schema takes `fresh_database`.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ragcache.store.embedded import EmbeddedPostgres
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import APP, OPS, Dsns, initialise
from ragcache.types import TenantId

_SHARED = "ragcache_test_shared"
_TEMPLATE = "ragcache_test_template"
#: Tests say nothing about durability; waiting for the disk only makes them slow.
_FAST = {"fsync": "off", "full_page_writes": "off", "max_connections": "200"}
_PASSWORDS = {APP: "test-app", OPS: "test-ops"}


@pytest.fixture(scope="session")
def admin_dsn() -> Iterator[str]:
    """The DSN of a server's administrator."""
    if given := os.environ.get("RAGCACHE_TEST_DSN"):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="rc-pg-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o711)
        with EmbeddedPostgres(home / "pg", settings=_FAST) as server:
            yield server.dsn()


@pytest.fixture(scope="session")
def create_database(admin_dsn: str) -> Iterator[Callable[..., str]]:
    """Create a database from a template; return its administrator's DSN."""
    made: list[str] = []

    def create(name: str = "", *, template: str = "template1") -> str:
        name = name or f"ragcache_test_{secrets.token_hex(6)}"
        with psycopg.connect(admin_dsn, autocommit=True) as connection:
            _drop(connection, name)
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )
        made.append(name)
        return make_conninfo(admin_dsn, dbname=name)

    yield create
    if not os.environ.get("RAGCACHE_TEST_DSN"):
        return  # the whole server goes away
    with psycopg.connect(admin_dsn, autocommit=True) as connection:
        for name in made:
            _drop(connection, name)


@pytest.fixture(scope="session")
def template_database(create_database: Callable[..., str]) -> str:
    """A database with roles, schema and tables, to be copied; nothing connects to it."""
    initialise_for_tests(create_database(_TEMPLATE))
    return _TEMPLATE


@pytest.fixture(scope="session")
def postgres(create_database: Callable[..., str], template_database: str) -> Dsns:
    """The database that tests share: use a tenant of your own (`tenant`)."""
    return initialise_for_tests(create_database(_SHARED, template=template_database))


@pytest.fixture
def fresh_database(create_database: Callable[..., str], template_database: str) -> Dsns:
    """A database of the test's own, to change as it likes."""
    return initialise_for_tests(create_database(template=template_database))


@pytest.fixture
def bare_database(create_database: Callable[..., str]) -> str:
    """An empty database; return its administrator's DSN."""
    return create_database()


@pytest.fixture
def tenant() -> TenantId:
    """A tenant that nobody else uses."""
    return TenantId(f"tenant-{secrets.token_hex(6)}")


@pytest.fixture
async def store(postgres: Dsns) -> AsyncIterator[PostgresStore]:
    """An open store on the shared database, patient on a busy machine."""
    opened = PostgresStore(postgres.app, pool_wait_s=10.0, lookup_timeout_s=10.0)
    await opened.open()
    yield opened
    await opened.close()


def initialise_for_tests(dsn: str) -> Dsns:
    """Make roles and schema; the roles' passwords are the same in every test database."""
    return initialise(dsn, app_password=_PASSWORDS[APP], ops_password=_PASSWORDS[OPS])


def _drop(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    connection.execute(
        sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    )
