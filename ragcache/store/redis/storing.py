"""What the script that stores an entry is told. Plain functions; no connection here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from ...protocols import Snapshot
from ...types import Entry
from ..notices import name_digest
from ..rows import lineage_names, storable
from . import entries, places
from .link import Value
from .server import Vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Storing:
    """How a store keeps entries.

    Args:
        quota: Most entries of a namespace.
        quantised: Keep vectors in 8 bits.
    """

    quota: int
    quantised: bool

    def values(
        self, entry: Entry, snapshot: Snapshot, vector: bytes, how: Vectors, *, replacing: bool
    ) -> tuple[Value, ...]:
        """Return the arguments of `put`, behind the prefix; `vector` holds its float32 bytes."""
        scope, dimensions = entry.scope, len(vector) // 4
        names = [name_digest(scope.tenant, name) for name in lineage_names(entry.lineage)]
        return (
            storable(entry.id),
            places.space(scope),
            entry.keys.exact,
            entry.keys.normal,
            places.writer(scope.tenant, scope.principal),
            scope.partition,
            entry.state,
            json.dumps(names),
            str(snapshot.epoch),
            json.dumps(dict(snapshot.changes)),
            self.quota,
            entries.micros(entry.created_at),
            entries.micros(entry.expire_at),
            lifetime_ms(entry.created_at, entry.expire_at),
            entries.packed(entry),
            places.place(scope, entry.embedder, dimensions) if dimensions else "",
            how,
            vector,
            dimensions,
            "Q8" if self.quantised else "NOQUANT",
            int(replacing),
        )


def lifetime_ms(begin: datetime, end: datetime) -> int:
    """How long the server keeps it, by its own clock; whether it is served says `now`."""
    return max(0, entries.micros(end) - entries.micros(begin)) // 1000
