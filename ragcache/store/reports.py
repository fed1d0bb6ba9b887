"""What an operator looks at: statistics, single entries, the audit, the state of health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from ..errors import StoreError
from . import checks, migrations
from .errors import translated
from .findings import Finding
from .ops import SQL, connected, inside, tenants
from .rows import storable
from .session import Pool


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceStats:
    """What one namespace of one tenant holds."""

    tenant: str
    namespace: str
    entries: int
    live: int
    quarantined: int
    deleted: int
    expired: int
    hits: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What the store holds."""

    namespaces: tuple[NamespaceStats, ...] = ()
    #: How many vectors each embedder has made: only those of the one in use can be hits.
    embedders: Mapping[str, int] = field(default_factory=dict)


def stats(ops_dsn: str, *, now: datetime, tenant: str | None = None) -> Stats:
    """Return what each namespace holds."""
    found: list[NamespaceStats] = []
    embedders: dict[str, int] = {}
    with connected(ops_dsn) as connection:
        for place in tenants(connection, tenant):
            values = {"tenant": place, "now": now}
            with inside(connection, place):
                rows = connection.execute(SQL["stats"], values).fetchall()
                vectors = connection.execute(SQL["stats_embedders"], values).fetchall()
            found += [_stats(place, row) for row in rows]
            for embedder, count in vectors:
                embedders[embedder] = embedders.get(embedder, 0) + count
    return Stats(namespaces=tuple(found), embedders=embedders)


def _stats(tenant: str, row: Sequence[Any]) -> NamespaceStats:
    namespace, entries, live, quarantined, deleted, expired, hits, size = row
    return NamespaceStats(
        tenant=tenant,
        namespace=namespace,
        entries=entries,
        live=live,
        quarantined=quarantined,
        deleted=deleted,
        expired=expired,
        hits=hits,
        bytes=size,
    )


def inspect(ops_dsn: str, tenant: str, entry: str) -> dict[str, Any] | None:
    """Return everything known of an entry as plain data; None where there is none.

    `names` shows for each document the change number the answer was built from and the one in
    force: where they differ the entry cannot be served.
    """
    values = {"tenant": storable(tenant), "id": storable(entry)}
    with connected(ops_dsn) as connection, inside(connection, tenant):
        row = connection.execute(SQL["inspect"], values).fetchone()
    if row is None:
        return None
    columns, answer, reading, lineage, names, epoch, use = row
    return {
        **columns,
        "answer": answer,
        "reading": reading,
        "lineage": lineage or [],
        "names": names or [],
        "epoch_now": epoch,
        "use": use,
    }


def entries(ops_dsn: str, tenant: str, *, limit: int = 50) -> list[dict[str, Any]]:
    """Return the newest entries of a tenant in short."""
    return _listed(ops_dsn, "list_entries", tenant, limit)


def audit(ops_dsn: str, tenant: str, *, limit: int = 50) -> list[dict[str, Any]]:
    """Return what was taken out of service lately, newest first."""
    return _listed(ops_dsn, "audit_rows", tenant, limit)


def _listed(ops_dsn: str, name: str, tenant: str, limit: int) -> list[dict[str, Any]]:
    values = {"tenant": storable(tenant), "limit": limit}
    with connected(ops_dsn) as connection, inside(connection, tenant):
        cursor = connection.execute(SQL[name], values)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


async def doctor(app_dsn: str, ops_dsn: str | None = None) -> tuple[Finding, ...]:
    """Look at everything that serving needs; raises nothing.

    Args:
        app_dsn: The app role's.
        ops_dsn: The ops role's, where there is one.
    """
    found = [await _isolation(app_dsn)]
    if ops_dsn is None:
        found.append(Finding(name="ops", ok=True, detail="no ops DSN: maintenance runs elsewhere"))
    else:
        found += [_reachable(ops_dsn), _migrated(ops_dsn)]
    return tuple(found)


async def _isolation(app_dsn: str) -> Finding:
    if fault := await _unreachable(app_dsn):
        return Finding(name="isolation", ok=False, detail=fault)
    pool: Pool = AsyncConnectionPool(
        app_dsn, open=False, min_size=1, max_size=2, timeout=2.0, kwargs={"autocommit": True}
    )
    try:
        with translated():
            await pool.open(wait=True, timeout=3.0)
            await checks.check(pool)
    except StoreError as error:
        return Finding(name="isolation", ok=False, detail=str(error))
    finally:
        await pool.close()
    return Finding(name="isolation", ok=True, detail="tenants are kept apart")


async def _unreachable(app_dsn: str) -> str:
    """Return why the database cannot be reached, and what to do; a pool would say "timeout"."""
    try:
        with translated():
            await (await psycopg.AsyncConnection.connect(app_dsn, connect_timeout=3)).close()
    except StoreError as error:
        return (
            f"{str(error).strip()}: start it, or correct store.dsn (RAGCACHE_STORE__DSN); without "
            "a DSN an embedded Postgres is started"
        )
    return ""


def _reachable(ops_dsn: str) -> Finding:
    try:
        with translated(), psycopg.connect(ops_dsn, connect_timeout=3) as connection:
            version = connection.execute("SELECT current_setting('server_version')").fetchone()
    except StoreError as error:
        return Finding(name="ops", ok=False, detail=str(error))
    return Finding(name="ops", ok=True, detail=f"PostgreSQL {version[0] if version else ''}")


def _migrated(ops_dsn: str) -> Finding:
    try:
        lacking = migrations.check(ops_dsn)
    except StoreError as error:
        return Finding(name="schema", ok=False, detail=str(error))
    names = ", ".join(str(step) for step in lacking)
    detail = f"lacks {names}: run `ragcache migrate`" if lacking else "up to date"
    return Finding(name="schema", ok=not lacking, detail=detail)
