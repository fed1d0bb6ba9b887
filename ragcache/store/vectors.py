"""Vectors on their way into SQL: refused here, or sound there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import VectorError
from ..types import Vector

#: A vector stays in its row (out of line, a scan is ten times slower), so that it must fit a
#: page of 8 kB beside the other columns.
VECTOR_DIMENSIONS_MAX = 1800
HALFVEC_DIMENSIONS_MAX = 3600
_UNIT_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Where vectors of some length are kept, and as which type."""

    name: str
    type: str


VECTOR = Column(name="embedding", type="vector")
HALFVEC = Column(name="embedding_half", type="halfvec")


def column_for(dimensions: int, *, halfvec: bool) -> Column:
    """Return the column for vectors of a length: half precision where asked for or needed.

    Raises:
        VectorError: The vector is longer than a row can hold.
    """
    if dimensions > HALFVEC_DIMENSIONS_MAX:
        raise VectorError(
            f"the embedder gives {dimensions} dimensions, at most {HALFVEC_DIMENSIONS_MAX} can be "
            "kept: choose a smaller output size of the embedder"
        )
    return HALFVEC if halfvec or dimensions > VECTOR_DIMENSIONS_MAX else VECTOR


def checked(vector: Vector, dimensions: int | None) -> Vector:
    """Return the vector as float32 of unit length if it can be compared by cosine.

    Postgres orders NaN above every number, and the cosine to a zero vector is NaN: neither may
    ever reach a comparison.

    Args:
        vector: As the embedder gave it.
        dimensions: The length it must have; any where None.

    Raises:
        VectorError: It holds NaN or infinity, is zero, or has another length.
    """
    values = np.asarray(vector, dtype=np.float32)
    if values.ndim != 1 or values.size == 0:
        raise VectorError(f"a vector must have one axis and some values, not shape {values.shape}")
    if dimensions is not None and values.size != dimensions:
        raise VectorError(
            f"the vector has {values.size} dimensions, entries of this embedder have {dimensions}: "
            "the embedder changed without changing its id; give it another id and run "
            "`ragcache reembed`"
        )
    # Squares of very small or large values leave float32, in which Postgres adds them up.
    exact = values.astype(np.float64)
    length = math.sqrt(exact @ exact)
    if not math.isfinite(length):
        raise VectorError("the vector holds NaN or infinity: the embedder failed on this text")
    if length == 0.0:
        raise VectorError("the vector is zero: the embedder failed on this text")
    if abs(length - 1.0) < _UNIT_TOLERANCE:
        return values
    return (exact / length).astype(np.float32)


class Lengths:
    """Remembers how long each embedder's vectors are, and refuses others.

    Args:
        fixed: The length of all, where it is known beforehand.
    """

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._known: dict[str, int] = {}

    def checked(self, vector: Vector, embedder: str) -> Vector:
        """Return the vector as `checked` does, of the length that this embedder's have."""
        values = checked(vector, self._fixed or self._known.get(embedder))
        self._known.setdefault(embedder, values.size)
        return values
