"""Store one entry inside a transaction: what it depends on is held still meanwhile.

The rows of the namespace and of each document are locked FOR SHARE before they are compared
with the snapshot. An invalidation that comes at the same moment waits for the store, and kills
the entry by its number afterwards; or it comes first, and the store sees it and refuses.
"""

from __future__ import annotations

from typing import Any

from ..errors import StoreUnavailableError
from ..protocols import Snapshot
from ..types import Entry, Vector
from .queries import queries
from .rows import entry_values, lineage_names, refusal
from .session import Connection

_SQL = queries("storing")
Values = dict[str, Any]


class Storing:
    """Stores entries, and keeps each namespace of each tenant within its quota.

    Args:
        quota: Most entries of a namespace that has no quota of its own.
    """

    def __init__(self, quota: int) -> None:
        self._quota = quota
        self._since_count: dict[tuple[str, str], int] = {}

    async def put(
        self,
        connection: Connection,
        entry: Entry,
        snapshot: Snapshot,
        vectors: dict[str, Vector | None],
    ) -> str:
        """Store the entry; return "" or why not, in the words of `PostgresStore.put`."""
        names = lineage_names(entry.lineage)
        values: Values = {**entry_values(entry, snapshot.epoch), **vectors, "names": list(names)}
        epoch, quota = await self.lock_namespace(connection, values)
        numbers = await self.lock_documents(connection, values)
        if reason := refusal(snapshot, epoch, numbers):
            return reason
        if quota == 0:
            return "quota"
        await connection.execute(_SQL["supersede"], values)
        values["numbers"] = [numbers[name] for name in names]
        cursor = await connection.execute(_SQL["insert_entry"], values)
        ((stored,),) = await cursor.fetchall()
        if not stored:
            return await _collision(connection, values)
        await self._evict(connection, values, quota)
        return ""

    async def lock_namespace(self, connection: Connection, values: Values) -> tuple[int, int]:
        """Return epoch and quota, held still until the transaction ends."""
        for _ in range(2):
            cursor = await connection.execute(_SQL["lock_namespace"], values)
            if (row := await cursor.fetchone()) is not None:
                return row[0], self._quota if row[1] is None else row[1]
            await connection.execute(_SQL["ensure_namespace"], values)
        raise StoreUnavailableError(
            f"the row of namespace {values['namespace']!r} vanished while an answer was stored"
        )

    async def lock_documents(self, connection: Connection, values: Values) -> dict[str, int]:
        """Return the change number of each name, held still until the transaction ends."""
        rows = await (await connection.execute(_SQL["lock_documents"], values)).fetchall()
        if len(rows) < len(values["names"]):
            await connection.execute(_SQL["ensure_documents"], values)
            rows = await (await connection.execute(_SQL["lock_documents"], values)).fetchall()
        return dict(rows)

    async def _evict(self, connection: Connection, values: Values, quota: int) -> None:
        """Make room now and then: counting on every store would cost more than the store."""
        place = (values["tenant"], values["namespace"])
        stored = self._since_count.get(place, 0) + 1
        self._since_count[place] = stored % max(1, quota // 64)
        if self._since_count[place]:
            return
        rows = await (await connection.execute(_SQL["count_entries"], values)).fetchall()
        if (excess := rows[0][0] - quota) > 0:
            settled = {**values, "excess": excess, "now": values["created_at"]}
            await connection.execute(_SQL["evict"], settled)


async def _collision(connection: Connection, values: Values) -> str:
    """Storing the same entry twice (an unknown outcome of a commit) is storing it once."""
    row = await (await connection.execute(_SQL["stored_id"], values)).fetchone()
    return "" if row is not None and row[0] == values["id"] else "exists"
