"""The three roles, and the database made ready for them.

owner   owns the schema and is held to its policies as well; nobody logs in as owner
app     serves requests; reads and writes rows of the tenant its transaction names
ops     migrates, builds indexes, purges; also one tenant at a time, but may list the tenants
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from ..errors import StoreError
from . import migrations
from .errors import translated

OWNER, APP, OPS = "ragcache_owner", "ragcache_app", "ragcache_ops"
#: NOT VALID for less: CVE-2025-8713 and security_invoker views need 15, iterative scans 0.8.
MINIMUM_SERVER = 150000
MINIMUM_PGVECTOR = (0, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dsns:
    """How each role reaches the database. Holds passwords: never logged, masked in `repr`."""

    admin: str
    app: str
    ops: str

    def __repr__(self) -> str:
        return "Dsns(admin=***, app=***, ops=***)"


def initialise(
    admin_dsn: str, *, app_password: str | None = None, ops_password: str | None = None
) -> Dsns:
    """Make roles, schema and tables; return the DSNs of the roles. Safe to repeat.

    Args:
        admin_dsn: A role that may create roles, and the extension where it is missing.
        app_password, ops_password: New ones are made where none is given; an existing role
            gets the new password too.

    Raises:
        StoreError: The server is too old, or has no pgvector and it cannot be created.
        MigrationError: A migration failed.
        StoreUnavailableError: The server cannot be reached.
    """
    app_password = app_password or secrets.token_urlsafe(24)
    ops_password = ops_password or secrets.token_urlsafe(24)
    with translated(), psycopg.connect(admin_dsn, autocommit=True) as connection:
        _require_server(connection)
        _ensure_extension(connection)
        with connection.transaction():
            _ensure_role(connection, OWNER, None)
            _ensure_role(connection, APP, app_password)
            _ensure_role(connection, OPS, ops_password)
            _ensure_schema(connection)
    migrations.apply(admin_dsn)
    return Dsns(
        admin=admin_dsn,
        app=make_conninfo(admin_dsn, user=APP, password=app_password),
        ops=make_conninfo(admin_dsn, user=OPS, password=ops_password),
    )


def server_fault(number: int, version: str, pgvector: str | None) -> str:
    """Return what is wrong with a server; empty where it will do."""
    if number < MINIMUM_SERVER:
        return f"PostgreSQL {version} is too old: ragcache needs 15 or later"
    if pgvector is None:
        return (
            "this Postgres has no pgvector: install the extension on the server (0.8 or later), "
            "then run `ragcache init`, or leave the DSN out to use the embedded Postgres"
        )
    if tuple(int(part) for part in pgvector.split(".")[:2]) < MINIMUM_PGVECTOR:
        return (
            f"pgvector {pgvector} is too old: ragcache needs 0.8 or later; update the package on "
            "the server and run ALTER EXTENSION vector UPDATE"
        )
    return ""


def _require_server(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    fault = server_fault(connection.info.server_version, str(connection.info.server_version), "0.8")
    if fault:
        raise StoreError(fault)


def _ensure_extension(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    try:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile) as error:
        raise StoreError(server_fault(MINIMUM_SERVER, "", None)) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(
            "this role may not create the extension pgvector: have an administrator run "
            "CREATE EXTENSION vector in this database, then `ragcache init` again"
        ) from error
    row = connection.execute(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    fault = server_fault(MINIMUM_SERVER, "", str(row[0]) if row else None)
    if fault:
        raise StoreError(fault)


def _ensure_role(
    connection: psycopg.Connection[tuple[object, ...]], name: str, password: str | None
) -> None:
    """Create the role, or bring an existing one back to what it must be."""
    role = sql.Identifier(name)
    exists = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (name,)).rowcount
    if not exists:
        connection.execute(sql.SQL("CREATE ROLE {} NOINHERIT").format(role))
    connection.execute(
        sql.SQL("ALTER ROLE {} NOINHERIT NOLOGIN").format(role)
        if password is None
        else sql.SQL("ALTER ROLE {} NOINHERIT LOGIN PASSWORD {}").format(role, password)
    )


def _ensure_schema(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Create the schema, give the roles their way into it and their settings."""
    database = sql.Identifier(connection.info.dbname)
    extension = connection.execute(
        "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    path = sql.SQL("pg_catalog, ragcache, {}").format(
        sql.Identifier(str(extension[0]) if extension else "public")
    )
    names = {
        "owner": sql.Identifier(OWNER),
        "app": sql.Identifier(APP),
        "ops": sql.Identifier(OPS),
        "database": database,
        "path": path,
    }
    for statement in _SCHEMA:
        connection.execute(sql.SQL(statement).format(**names))


_SCHEMA = (
    # Both may act as the owner to migrate and to build indexes, but only by saying so.
    "GRANT {owner} TO {ops}",
    "GRANT {owner} TO CURRENT_USER",
    "CREATE SCHEMA IF NOT EXISTS ragcache AUTHORIZATION {owner}",
    "REVOKE ALL ON SCHEMA ragcache FROM PUBLIC",
    "GRANT USAGE ON SCHEMA ragcache TO {app}, {ops}",
    "GRANT CONNECT ON DATABASE {database} TO {app}, {ops}",
    "ALTER ROLE {app} IN DATABASE {database} SET search_path = {path}",
    "ALTER ROLE {ops} IN DATABASE {database} SET search_path = {path}",
    "ALTER ROLE {owner} IN DATABASE {database} SET search_path = {path}",
    # Lookups are too short for just-in-time code.
    "ALTER ROLE {app} IN DATABASE {database} SET jit = off",
    # Every statement has an index to go by. A plan kept from when a table filled one page would
    # otherwise read the whole of it.
    "ALTER ROLE {app} IN DATABASE {database} SET enable_seqscan = off",
)
