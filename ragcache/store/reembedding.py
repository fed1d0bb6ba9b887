"""Give stored questions new vectors after the embedder has changed.

Until then their entries are found by exact key alone: vectors of two embedders are never
compared. The work can be stopped at any moment; what is done stays done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import VectorError
from ..types import Vector
from .ops import SQL, Ops, connected, inside, tenants
from .rows import storable
from .vectors import VECTOR, checked, column_for

_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The embedder in use from now on, as ops sees it: its id, its length, and how to ask it."""

    id: str
    dimensions: int
    embed: Callable[[Sequence[str]], Sequence[Vector]]
    halfvec: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reembedded:
    """What a run has done; `skipped` questions got no sound vector and stay unservable."""

    done: int = 0
    skipped: int = 0


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
    done = skipped = 0
    with connected(ops_dsn) as connection:
        places = tenants(connection, tenant)
        total = sum(_count(connection, place, values) for place in places)
        for place in places:
            after = ""
            while rows := _next(connection, place, {**values, "after": after}):
                after = rows[-1][0]
                replaced = _replace(connection, place, rows, space)
                done, skipped = done + replaced, skipped + len(rows) - replaced
                if progress is not None:
                    progress(done + skipped, total)
    return Reembedded(done=done, skipped=skipped)


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


def _replace(connection: Ops, tenant: str, rows: Sequence[tuple[Any, ...]], space: Space) -> int:
    """Store the new vectors of some questions; return how many were sound."""
    column = column_for(space.dimensions, halfvec=space.halfvec)
    replaced = 0
    vectors = space.embed([question for _, question in rows])
    with inside(connection, tenant):
        for (id_, _), vector in zip(rows, vectors, strict=True):
            sound = _sound(vector, space.dimensions)
            if sound is None:
                continue
            text = "[" + ",".join(map(repr, sound.tolist())) + "]"
            values = {
                "tenant": tenant,
                "id": id_,
                "embedder": storable(space.id),
                "vector": text if column == VECTOR else None,
                "half": None if column == VECTOR else text,
            }
            connection.execute(SQL["replace_vector"], values)
            replaced += 1
    return replaced


def _sound(vector: Vector, dimensions: int) -> Vector | None:
    try:
        return checked(vector, dimensions)
    except VectorError:
        return None
