"""Alignment: every difference between two questions must be explained."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .lexicon.tables import tables
from .matching import Comparison
from .policy import LookupPolicy
from .reading import Reading

#: How much better a word that narrows the question must be explained than others.
NARROWING_MARGIN = 0.45


def unexplained(c: Comparison, policy: LookupPolicy) -> str:
    """Return "words" where a word left over has no counterpart on the other side, or ""."""
    if not c.open_left and not c.open_right:
        return ""
    if policy.gates == "strict" or "zh" in (c.stored.language, c.asked.language):
        return "words"  # the vector of one Chinese character explains nothing
    worst = weakest(c)
    return "" if worst is not None and worst >= policy.alignment else "words"


def weakest(c: Comparison) -> float | None:
    """Return how well the worst explained word is explained, or None without vectors."""
    cosines = similarities(c)
    if cosines is None:
        return None
    light_left, light_right = not _heavy(c.asked, c.open_right), not _heavy(c.stored, c.open_left)
    left = _explained(c.stored, c.open_left, cosines, may_be_light=light_left)
    right = _explained(c.asked, c.open_right, cosines.T, may_be_light=light_right)
    return min([*left, *right], default=1.0)


def _heavy(reading: Reading, places: Sequence[int]) -> bool:
    light = tables().light
    return any(reading.content[at].stem not in light for at in places)


def _explained(
    reading: Reading, places: Sequence[int], cosines: NDArray[np.float32], *, may_be_light: bool
) -> list[float]:
    known = tables()
    found = []
    for at in places:
        stem = reading.content[at].stem
        if may_be_light and stem in known.light:
            continue
        margin = NARROWING_MARGIN if stem in known.narrowing else 0.0
        found.append(float(cosines[at].max()) - margin)
    return found


def similarities(c: Comparison) -> NDArray[np.float32] | None:
    """Return the cosine similarity of every stored word with every asked one."""
    mine, theirs = c.stored.vectors, c.asked.vectors
    if mine is None or theirs is None or not len(mine) or not len(theirs):
        return None
    if mine.shape[1] != theirs.shape[1]:
        return None
    return mine.astype(np.float32) @ theirs.astype(np.float32).T / np.float32(127**2)
