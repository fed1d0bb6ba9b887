"""Which partitions have a vector index of their own, and how a search of each is planned.

Most partitions are searched exactly: their rows are found by tenant, partition and embedder, and
each is looked at. That plan is the same for everybody and is kept. Only a large partition has a
graph, which serves nobody else; the statement of a search there names the partition by constants,
because the planner can use a partial index only when it sees the tenant.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, LiteralString

from psycopg import sql

from .queries import queries
from .rows import Row
from .session import Rounds
from .vectors import Column

_SQL = queries("lookup")
#: A new index is noticed after this time; until then its partition is searched exactly.
_KNOWN_FOR_S = 60.0


def index_name(tenant: str, partition: str, embedder: str, dimensions: int, column: Column) -> str:
    """Return the name of the vector index of one partition's vectors of one embedder."""
    fields = (tenant, partition, embedder, str(dimensions), column.type)
    framed = "".join(f"{len(field)}:{field}" for field in fields)
    return f"entry_near_{hashlib.sha256(framed.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One partition's vectors of one embedder, in one column."""

    tenant: str
    partition: str
    embedder: str
    dimensions: int
    column: Column

    @property
    def index(self) -> str:
        """The name of its index, where it has one."""
        return index_name(self.tenant, self.partition, self.embedder, self.dimensions, self.column)


@lru_cache(maxsize=256)
def near_statement(place: Place, *, exactly: bool, text: LiteralString) -> bytes:
    """Return the search of a place, by looking at each row or by walking its graph."""
    composed = sql.SQL(text).format(
        column=sql.Identifier(place.column.name),
        type=sql.Identifier(place.column.type),
        dimensions=sql.Literal(place.dimensions),
        exactly=sql.SQL("+ 0") if exactly else sql.SQL(""),
        graph=sql.SQL("") if exactly else _GRAPH.format(**_literals(place)),
    )
    return composed.as_bytes(None)


_GRAPH = sql.SQL(
    "AND e.tenant = {tenant} AND e.partition = {partition} AND e.embedder = {embedder}"
)


def _literals(place: Place) -> dict[str, sql.Literal]:
    """Return what names the place as constants; every % is doubled, since it is no parameter."""
    names = {"tenant": place.tenant, "partition": place.partition, "embedder": place.embedder}
    return {name: sql.Literal(value.replace("%", "%%")) for name, value in names.items()}


class Near:
    """Finds the nearest rows, and remembers which partitions have an index."""

    def __init__(self) -> None:
        self._indexes: frozenset[str] = frozenset()
        self._known_until = 0.0

    def indexed(self, place: Place) -> bool:
        """Return whether this place has a graph, as far as is known."""
        return place.index in self._indexes

    async def find(self, rounds: Rounds, values: dict[str, Any], place: Place) -> Sequence[Row]:
        """Return the rows of `find_near`, nearest first; with them the transaction ends.

        A graph can run out of ways to a row (one far from a crowd of expired ones): where it
        gives fewer than were asked for, every row is looked at.
        """
        rows: Sequence[Row] = ()
        text = _SQL["find_near"]
        if self.indexed(place):
            walking = near_statement(place, exactly=False, text=text)
            rows = await rounds.ask(walking, values, last=True)
        if len(rows) < values["reach"]:
            # The same statement for every partition: what they share is worth keeping.
            anywhere = replace(place, tenant="", partition="", embedder="")
            statement = near_statement(anywhere, exactly=True, text=text)
            rows = await rounds.ask(statement, values, last=True)
        return rows

    async def refresh(self, rounds: Rounds) -> None:
        """Look which graphs there are, once in a while."""
        if time.monotonic() < self._known_until:
            return
        rows = await rounds.ask(_SQL["near_indexes"], {}, prepare=False)
        self._indexes = frozenset([name for (name,) in rows])
        self._known_until = time.monotonic() + _KNOWN_FOR_S
