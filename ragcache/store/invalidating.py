"""Make entries unservable inside a transaction, and tell other processes when it commits.

Changes and epochs only write numbers: what they kill is decided at every read, by comparing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .notices import notice
from .queries import queries
from .rows import storable
from .session import Connection

_SQL = queries("invalidation")


async def change(connection: Connection, tenant: str, names: Sequence[str]) -> int:
    """Give documents new change numbers; return how many entries that kills."""
    changed = sorted({storable(name) for name in names})
    values = {"tenant": storable(tenant), "names": changed}
    await connection.execute(_SQL["change_documents"], values)
    killed = await _number(connection, "count_killed", values)
    await _notify(connection, "change", tenant, changed)
    return killed


async def bump_epoch(connection: Connection, tenant: str, namespace: str) -> int:
    """Give a namespace a new epoch; return it."""
    values = {"tenant": storable(tenant), "namespace": storable(namespace)}
    epoch = await _number(connection, "bump_epoch", values)
    await _notify(connection, "epoch", tenant)
    return epoch


async def quarantine(connection: Connection, tenant: str, entry: str, reason: str) -> None:
    """Take an entry out of service and write an audit row."""
    values = {
        "tenant": storable(tenant),
        "id": storable(entry),
        "reason": reason or "unspecified",
        "action": "quarantine",
        "subject": storable(entry),
    }
    cursor = await connection.execute(_SQL["quarantine"], values)
    await connection.execute(_SQL["audit"], {**values, "entries": cursor.rowcount})
    await _notify(connection, "quarantine", tenant)


async def count(connection: Connection, tenant: str) -> int:
    """Return how many entries a purge of the tenant would remove."""
    return await _number(connection, "count_tenant", {"tenant": storable(tenant)})


async def purge(connection: Connection, tenant: str) -> int:
    """Remove every entry of a tenant, move its epochs on, write an audit row; return how many."""
    values = {"tenant": storable(tenant), "action": "purge", "subject": "tenant", "reason": ""}
    await connection.execute(_SQL["bump_all_epochs"], values)
    removed = (await connection.execute(_SQL["purge_entries"], values)).rowcount
    await connection.execute(_SQL["purge_documents"], values)
    await connection.execute(_SQL["audit"], {**values, "entries": removed})
    await _notify(connection, "purge", tenant)
    return removed


async def _number(connection: Connection, name: str, values: dict[str, Any]) -> int:
    ((number,),) = await (await connection.execute(_SQL[name], values)).fetchall()
    return int(number)


async def _notify(
    connection: Connection, kind: str, tenant: str, names: Sequence[str] = ()
) -> None:
    await connection.execute(_SQL["notify"], {"payload": notice(kind, tenant, names)})
