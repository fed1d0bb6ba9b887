"""Take stored answers out of service: by model, version, document, writer, age, entry, tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

from psycopg import sql

from ..errors import ConfigError
from ..keys import raw_hash
from .notices import notice
from .ops import SQL, Ops, connected, inside, tenants
from .queries import queries
from .rows import raw_name, storable
from .selection import Purged, Selection

__all__ = [
    "Purged",
    "Selection",
    "erase_principal",
    "erase_tenant",
    "promote",
    "purge",
    "restore",
]

_INVALIDATION = queries("invalidation")

#: What each criterion means in SQL. Values travel as parameters; these texts are all there is.
_CRITERIA: Mapping[str, LiteralString] = {
    "namespace": "e.namespace = %(namespace)s",
    "model": "e.model = %(model)s",
    "version": "e.version = %(version)s",
    "writer": "e.principal = %(writer)s",
    "entry": "e.id = %(entry)s",
    "embedder": "e.embedder = %(embedder)s",
    "older_than": "e.created_at < %(older_than)s",
    "document": (
        "e.id IN (SELECT l.entry FROM ragcache.lineage_name l"
        " WHERE l.tenant = %(tenant)s AND l.name = %(document)s)"
    ),
}
#: What erasing a tenant leaves: epochs that move on. The audit cannot be deleted by anybody here.
_KEPT = frozenset({"namespace"})
_PRINCIPAL: LiteralString = "(e.principal = %(writer)s OR e.sharing = %(group)s)"


def purge(
    ops_dsn: str,
    selection: Selection,
    *,
    dry_run: bool = False,
    hard: bool = False,
    reason: str = "",
) -> Purged:
    """Take the selected entries out of service; write an audit row for each tenant touched.

    Args:
        ops_dsn: The ops role's.
        selection: Which entries. At least one criterion, or a tenant.
        dry_run: Count only.
        hard: Remove the rows at once; otherwise maintenance does later, until then they can be
            looked at and restored.
        reason: For the audit.

    Raises:
        ConfigError: Nothing was selected, which would mean everything of everybody.
    """
    if selection.tenant is None and not selection.criteria():
        raise ConfigError("say what to purge: a tenant, or at least one of " + ", ".join(_CRITERIA))
    clauses = [sql.SQL(_CRITERIA[name]) for name in selection.criteria()]
    taken: dict[str, int] = {}
    with connected(ops_dsn) as connection:
        for tenant in tenants(connection, selection.tenant):
            with inside(connection, tenant):
                values = _values(selection, tenant) | {"reason": reason or "purged"}
                count = _take(connection, clauses, values, dry_run=dry_run, hard=hard)
                if count and not dry_run:
                    _tell(connection, tenant, str(selection), reason, count)
                if count:
                    taken[tenant] = count
    return Purged(entries=taken, dry_run=dry_run)


def erase_principal(ops_dsn: str, tenant: str, principal: str, *, dry_run: bool = False) -> Purged:
    """Remove what a principal has written or was kept for, in every table, for good.

    The audit keeps that it happened, with a hash in place of the name. The count is of entries.
    """
    values = {
        "tenant": storable(tenant),
        "writer": storable(principal),
        "group": storable(f"principal:{principal}"),
    }
    with connected(ops_dsn) as connection, inside(connection, tenant):
        count = _take(connection, [sql.SQL(_PRINCIPAL)], values, dry_run=dry_run, hard=True)
        if not dry_run:
            _erase(connection, "erase_principal", "principal", values)
            subject = f"principal={raw_name(raw_hash(principal))}"
            _tell(connection, tenant, subject, "erasure", count)
    return Purged(entries={tenant: count} if count else {}, dry_run=dry_run)


def erase_tenant(ops_dsn: str, tenant: str, *, dry_run: bool = False) -> Purged:
    """Remove everything of a tenant in every table, for good; the count is of entries.

    The names of its namespaces stay with a new epoch, so that an answer on its way comes too
    late, and so does the audit.
    """
    values = {"tenant": storable(tenant)}
    with connected(ops_dsn) as connection, inside(connection, tenant):
        count = _take(connection, [], values, dry_run=dry_run, hard=True)
        if not dry_run:
            connection.execute(_INVALIDATION["bump_all_epochs"], values)
            _erase(connection, "erase_tenant", "tenant", values)
            _tell(connection, tenant, "tenant", "erasure", count)
    return Purged(entries={tenant: count} if count else {}, dry_run=dry_run)


def _erase(
    connection: Ops, statement: LiteralString, column: str, values: Mapping[str, Any]
) -> None:
    for (table,) in connection.execute(SQL["tables_with"], {"column": column}).fetchall():
        if table not in _KEPT:
            named = sql.SQL(SQL[statement]).format(table=sql.Identifier(table))
            connection.execute(named, values)


def promote(ops_dsn: str, tenant: str, entry: str, *, reason: str = "") -> bool:
    """Put a quarantined entry into service; return whether there was one."""
    return _set_live(ops_dsn, "promote", tenant, entry, reason)


def restore(ops_dsn: str, tenant: str, entry: str, *, reason: str = "") -> bool:
    """Put a softly deleted entry back into service; return whether there was one."""
    return _set_live(ops_dsn, "restore", tenant, entry, reason)


def _set_live(ops_dsn: str, action: LiteralString, tenant: str, entry: str, reason: str) -> bool:
    values = {"tenant": storable(tenant), "id": storable(entry)}
    with connected(ops_dsn) as connection, inside(connection, tenant):
        changed = connection.execute(SQL[action], values).rowcount
        if changed:
            _audit(connection, tenant, action, storable(entry), reason, changed)
    return bool(changed)


def _values(selection: Selection, tenant: str) -> dict[str, Any]:
    given = {
        name: storable(value) if isinstance(value, str) else value
        for name, value in selection.criteria().items()
    }
    return {**given, "tenant": storable(tenant)}


def _take(
    connection: Ops,
    clauses: list[sql.SQL],
    values: dict[str, Any],
    *,
    dry_run: bool,
    hard: bool,
) -> int:
    """Count, mark or remove; a document that is purged also counts as changed."""
    conditions = [*clauses] if hard else [*clauses, sql.SQL("e.state <> 'deleted'")]
    chosen = sql.SQL(" AND ").join(conditions) if conditions else sql.SQL("true")
    name = "delete_selected" if hard else "delete_selected_softly"
    if dry_run:
        name = "count_selected"
    if not dry_run and "document" in values:
        changed = {"tenant": values["tenant"], "names": [values["document"]]}
        connection.execute(_INVALIDATION["change_documents"], changed)
    cursor = connection.execute(sql.SQL(SQL[name]).format(selection=chosen), values)
    if not dry_run:
        return cursor.rowcount
    ((count,),) = cursor.fetchall()
    return int(count)


def _tell(connection: Ops, tenant: str, subject: str, reason: str, count: int) -> None:
    _audit(connection, tenant, "purge", subject, reason, count)
    connection.execute(_INVALIDATION["notify"], {"payload": notice("purge", tenant)})


def _audit(
    connection: Ops, tenant: str, action: str, subject: str, reason: str, count: int
) -> None:
    connection.execute(
        _INVALIDATION["audit"],
        {
            "tenant": storable(tenant),
            "action": action,
            "subject": subject,
            "reason": reason,
            "entries": count,
        },
    )
