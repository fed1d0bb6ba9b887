"""Which partitions have a vector index of their own, and how a search of each is planned.

Most partitions are searched exactly: their rows are found by tenant, partition and embedder, and
each is looked at. That plan is the same for everybody and is kept. Only a large partition has a
graph, which serves nobody else; a search there is planned for the values at hand, because the
planner can use a partial index only when it sees the tenant.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, LiteralString

from psycopg import sql

from .queries import queries
from .session import Connection
from .vectors import Column

_SQL = queries("lookup")
#: A new index is noticed after this time; until then its partition is searched exactly.
_KNOWN_FOR_S = 60.0


def index_name(tenant: str, partition: str, embedder: str, dimensions: int, column: Column) -> str:
    """Return the name of the vector index of one partition's vectors of one embedder."""
    fields = (tenant, partition, embedder, str(dimensions), column.type)
    framed = "".join(f"{len(field)}:{field}" for field in fields)
    return f"entry_near_{hashlib.sha256(framed.encode()).hexdigest()[:32]}"


@lru_cache(maxsize=64)
def _near_statement(text: LiteralString, dimensions: int, column: Column, exactly: bool) -> bytes:  # noqa: FBT001 -- a key of the cache
    composed = sql.SQL(text).format(
        column=sql.Identifier(column.name),
        type=sql.Identifier(column.type),
        dimensions=sql.Literal(dimensions),
        exactly=sql.SQL("+ 0") if exactly else sql.SQL(""),
    )
    return composed.as_bytes(None)


def near_statement(dimensions: int, column: Column, *, exactly: bool) -> bytes:
    """Return the search for vectors of one length, by looking at each row or by an index."""
    return _near_statement(_SQL["find_near"], dimensions, column, exactly)


class Near:
    """Finds the nearest rows, and remembers which partitions have an index."""

    def __init__(self) -> None:
        self._indexes: frozenset[str] = frozenset()
        self._known_until = 0.0

    def indexed(self, values: dict[str, Any], dimensions: int, column: Column) -> bool:
        """Return whether this partition has a graph, as far as is known."""
        place = (values["tenant"], values["partition"], values["embedder"])
        return index_name(*place, dimensions, column) in self._indexes

    async def find(
        self, connection: Connection, values: dict[str, Any], dimensions: int, column: Column
    ) -> Sequence[tuple[str, float]]:
        """Return ids with their distances, nearest first.

        A graph can run out of ways to a row (one far from a crowd of expired ones): where it
        gives fewer than were asked for, every row is looked at.
        """
        rows: list[tuple[Any, ...]] = []
        if self.indexed(values, dimensions, column):
            statement = near_statement(dimensions, column, exactly=False)
            rows = await (await connection.execute(statement, values, prepare=False)).fetchall()
        if len(rows) < values["reach"]:
            statement = near_statement(dimensions, column, exactly=True)
            rows = await (await connection.execute(statement, values, prepare=True)).fetchall()
        # The distance to a zero vector is NaN; none is written, but none is trusted either.
        return [(id_, distance) for id_, distance in rows if not math.isnan(distance)]

    async def refresh(self, connection: Connection) -> None:
        """Look which graphs there are, once in a while."""
        if time.monotonic() < self._known_until:
            return
        cursor = await connection.execute(_SQL["near_indexes"], {})
        self._indexes = frozenset([name for (name,) in await cursor.fetchall()])
        self._known_until = time.monotonic() + _KNOWN_FOR_S
