"""The start-up self-check: serve only where tenants are kept apart.

Each check asks the catalogue, because a policy that somebody dropped or a role that somebody
widened gives no error: it gives rows.
"""

from __future__ import annotations

import secrets
from typing import Any

from ..errors import IsolationError, MigrationError, StoreError
from ..types import TenantId
from . import migrations
from .queries import queries
from .roles import server_fault
from .session import Connection, Pool, inside

_SQL = queries("check")
_ADVICE = "give the store the app DSN that `ragcache init` made"
_CHECK_TIMEOUT_MS = "5000"


async def check(pool: Pool) -> None:
    """Raise unless this connection may serve.

    Raises:
        StoreError: The server is too old or has no pgvector.
        MigrationError: The schema is missing, behind or not ours.
        IsolationError: Something would let one tenant see another; the message says what.
    """
    async with pool.connection() as connection:
        await _check_server(connection)
        await _check_migrations(connection)
        _refuse(await _role_faults(connection))
        faults = [*await _catalogue_faults(connection), *await _visible_faults(connection)]
        faults += await _probe_faults(connection)
        _refuse(faults)


def _refuse(faults: list[str]) -> None:
    if faults:
        raise IsolationError(
            "this database does not keep tenants apart, serving is refused: " + "; ".join(faults)
        )


async def _rows(connection: Connection, name: str) -> list[tuple[Any, ...]]:
    return await (await connection.execute(_SQL[name], {})).fetchall()


async def _check_server(connection: Connection) -> None:
    ((number, version, pgvector, resolves),) = await _rows(connection, "server")
    if fault := server_fault(number, version, pgvector):
        raise StoreError(fault)
    if not resolves:
        raise StoreError(
            "the type `vector` is not on the search path of this role: run `ragcache init` again, "
            "it sets the path of each role"
        )


async def _check_migrations(connection: Connection) -> None:
    ((exists,),) = await _rows(connection, "migrated")
    if not exists:
        raise MigrationError(
            "this database has no ragcache schema, or this role may not use it: run "
            "`ragcache init` with an administrator's DSN"
        )
    cursor = await connection.execute("SELECT number, checksum FROM ragcache.migration")
    applied: dict[int, str] = dict(await cursor.fetchall())
    if lacking := migrations.pending(migrations.migrations(), applied):
        names = ", ".join(str(step) for step in lacking)
        raise MigrationError(f"the schema lacks {names}: run `ragcache migrate`")


async def _role_faults(connection: Connection) -> list[str]:
    ((name, superuser, bypass, owner),) = await _rows(connection, "role")
    reasons = {
        "is a superuser": superuser,
        "has BYPASSRLS": bypass,
        "owns the tables, or may act as their owner": owner,
    }
    held = " and ".join(why for why, holds in reasons.items() if holds)
    return [f"the role {name} {held}: {_ADVICE}"] if held else []


async def _catalogue_faults(connection: Connection) -> list[str]:
    faults = [f"{table}: {why}" for table, why in await _rows(connection, "open_tables")]
    faults += [
        f"unique key {index} does not begin with the tenant"
        for (index,) in await _rows(connection, "open_keys")
    ]
    faults += [
        f"view {view} reads with its owner's rights: set security_invoker"
        for (view,) in await _rows(connection, "open_views")
    ]
    faults += [
        f"function {function} runs as a role without policies, or with an open search path"
        for (function,) in await _rows(connection, "open_functions")
    ]
    faults += [
        f"the role holds {right} on {table}"
        for table, right in await _rows(connection, "wide_grants")
    ]
    return faults


async def _visible_faults(connection: Connection) -> list[str]:
    """Look without a tenant: nothing may be there."""
    ((seen,),) = await _rows(connection, "visible_entries")
    return ["rows are visible where no tenant is set"] if seen else []


async def _probe_faults(connection: Connection) -> list[str]:
    """Look as a tenant that does not exist, and at what that leaves on the connection."""
    tenant = TenantId(f"self-check {secrets.token_hex(16)}")
    async with inside(connection, tenant, "tenant", {"timeout_ms": _CHECK_TIMEOUT_MS}):
        ((seen,),) = await _rows(connection, "visible_entries")
    faults = ["rows are visible to a tenant that has none"] if seen else []
    ((left,),) = await _rows(connection, "left_behind")
    if left:
        faults.append("a tenant stays set on the connection after its transaction")
    return faults
