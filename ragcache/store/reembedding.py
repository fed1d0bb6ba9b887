"""Give stored questions new vectors after the embedder has changed.

Until then their entries are found by exact key alone: vectors of two embedders are never
compared. What was understood of a question holds word vectors too, and the signature covers both,
so that each entry is read and signed anew. The work can be stopped at any moment; what is done
stays done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..admission import KeyRing
from ..errors import VectorError
from ..keys import fold
from ..lookup import SUPPORT, read
from ..types import (
    Embedding,
    Entry,
    Fingerprint,
    PrincipalId,
    Scope,
    TenantId,
    Vector,
)
from .ops import SQL, Ops, connected, inside, tenants
from .rows import Row, entry_of, reading_json, storable
from .vectors import VECTOR, checked, column_for

_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The embedder in use from now on, as ops sees it: its id, its length, and how to ask it.

    `keyring` signs what was genuine before; what was not is left alone.
    """

    id: str
    dimensions: int
    embed: Callable[[Sequence[str]], Sequence[Embedding]]
    keyring: KeyRing
    halfvec: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reembedded:
    """What a run has done.

    `skipped` questions got no sound vector, `refused` entries were not as they were signed: both
    stay as they are, found by exact key alone or not at all.
    """

    done: int = 0
    skipped: int = 0
    refused: int = 0


def reembed(
    ops_dsn: str,
    space: Space,
    *,
    now: datetime,
    tenant: str | None = None,
    batch: int = _BATCH,
    progress: Callable[[int, int], None] | None = None,
) -> Reembedded:
    """Embed anew every servable question whose vector another embedder made.

    Args:
        ops_dsn: The ops role's.
        space: The embedder in use from now on.
        now: Entries that have expired by then are left alone.
        tenant: Only this tenant's; everybody's where None.
        batch: Questions embedded at a time.
        progress: Called with how many are done and how many there were.

    Raises:
        EmbeddingError: The embedder failed; run again to go on.
    """
    values = {"embedder": storable(space.id), "now": now, "batch": batch}
    counts = Reembedded()
    with connected(ops_dsn) as connection:
        places = tenants(connection, tenant)
        total = sum(_count(connection, place, values) for place in places)
        seen = 0
        for place in places:
            after = ""
            while rows := _next(connection, place, {**values, "after": after}):
                after = rows[-1][0]
                counts = _added(counts, _replace_all(connection, place, rows, space))
                seen += len(rows)
                if progress is not None:
                    progress(seen, total)
    return counts


def _added(one: Reembedded, other: Reembedded) -> Reembedded:
    return Reembedded(
        done=one.done + other.done,
        skipped=one.skipped + other.skipped,
        refused=one.refused + other.refused,
    )


def _count(connection: Ops, tenant: str, values: dict[str, Any]) -> int:
    with inside(connection, tenant):
        rows = connection.execute(
            SQL["count_foreign_vectors"], {**values, "tenant": tenant}
        ).fetchall()
    return int(rows[0][0])


def _next(connection: Ops, tenant: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    with inside(connection, tenant):
        return connection.execute(
            SQL["next_foreign_vectors"], {**values, "tenant": tenant}
        ).fetchall()


def _replace_all(connection: Ops, tenant: str, rows: Sequence[Row], space: Space) -> Reembedded:
    """Store the new vectors of some entries."""
    entries = [_entry(row, TenantId(tenant)) for row in rows]
    genuine = [entry for entry in entries if space.keyring.verify(entry)]
    embeddings = space.embed([fold(entry.question) for entry in genuine]) if genuine else ()
    done = 0
    with inside(connection, tenant):
        for entry, embedding in zip(genuine, embeddings, strict=True):
            vector = _sound(embedding.vector, space.dimensions)
            if vector is not None:
                _replace(
                    connection, space.keyring.sign(_renewed(entry, embedding, space)), vector, space
                )
                done += 1
    return Reembedded(done=done, skipped=len(genuine) - done, refused=len(entries) - len(genuine))


def _entry(row: Row, tenant: TenantId) -> Entry:
    """Return the entry of a row that ends with its scope."""
    *columns, sharing, namespace, partition, access = row
    scope = Scope(
        tenant=tenant,
        principal=PrincipalId(columns[1]),
        group=sharing,
        namespace=namespace,
        partition=Fingerprint(partition),
        access=frozenset(access),
    )
    return entry_of(columns, scope)


def _renewed(entry: Entry, embedding: Embedding, space: Space) -> Entry:
    reading = read(entry.question, embedding).as_json()
    if entry.reading and SUPPORT in entry.reading:
        reading[SUPPORT] = entry.reading[SUPPORT]
    return replace(entry, reading=reading, embedder=space.id)


def _replace(connection: Ops, entry: Entry, vector: Vector, space: Space) -> None:
    text = "[" + ",".join(map(repr, vector.tolist())) + "]"
    whole = column_for(space.dimensions, halfvec=space.halfvec) == VECTOR
    values = {
        "tenant": storable(entry.scope.tenant),
        "id": entry.id,
        "embedder": storable(entry.embedder),
        "vector": text if whole else None,
        "half": None if whole else text,
        "reading": reading_json(entry),
        "kid": entry.kid,
        "signature": entry.signature,
    }
    connection.execute(SQL["replace_vector"], values)


def _sound(vector: Vector, dimensions: int) -> Vector | None:
    try:
        return checked(vector, dimensions)
    except VectorError:
        return None
