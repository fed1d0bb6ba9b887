"""Extremely randomised trees (Geurts, Ernst and Wehenkel 2006), fitted and asked in numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Fitted trees as arrays: one row a tree, one column a node; leaves have feature -1.

    The right child of a node stands behind its left one.
    """

    feature: NDArray[np.int16]
    split: Floats
    left: NDArray[np.int32]
    value: Floats

    def means(self, rows: Floats) -> Floats:
        """Return the mean of the leaves that each row falls into."""
        trees = np.arange(len(self.feature))
        return np.array([self._mean(row, trees) for row in rows])

    def _mean(self, row: Floats, trees: NDArray[np.int64]) -> float:
        nodes = np.zeros(len(trees), dtype=np.int32)
        while True:
            asked = self.feature[trees, nodes]
            inner = asked >= 0
            if not inner.any():
                return float(self.value[trees, nodes].mean())
            right = row[np.maximum(asked, 0)] > self.split[trees, nodes]
            nodes = np.where(inner, self.left[trees, nodes] + right, nodes)

    def as_json(self) -> dict[str, Any]:
        """Return the trees as plain JSON values."""
        return {
            "feature": self.feature.tolist(),
            "split": np.round(self.split, 5).tolist(),
            "left": self.left.tolist(),
            "value": np.round(self.value, 4).tolist(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Trees:
        """Return the trees. Raises KeyError or ValueError for anything else."""
        feature = np.asarray(value["feature"], dtype=np.int16)
        left = np.asarray(value["left"], dtype=np.int32)
        split = np.asarray(value["split"], dtype=np.float64)
        mean = np.asarray(value["value"], dtype=np.float64)
        if feature.ndim != 2 or not feature.shape == left.shape == split.shape == mean.shape:
            raise ValueError("trees are four tables of one shape")
        places = np.arange(feature.shape[1])
        inner = feature >= 0
        if np.any(inner & ((left <= places) | (left + 1 >= feature.shape[1]))):
            raise ValueError("a child stands behind its parent, inside its tree")
        return cls(feature=feature, split=split, left=left, value=mean)


def grow(
    rows: Floats,
    same: NDArray[np.bool_],
    *,
    trees: int = 200,
    leaf: int = 5,
    share: float = 0.4,
    seed: int = 0,
) -> Trees:
    """Fit trees.

    Args:
        rows: Features, one row a pair.
        same: Whether the pair has one answer.
        trees: How many trees.
        leaf: Fewest pairs in a leaf.
        share: Share of the features that a split chooses from.
        seed: Of the random splits.
    """
    rng = np.random.default_rng(seed)
    tried = max(1, math.ceil(rows.shape[1] * share))
    grown = [_grown(rows, same.astype(np.float64), leaf, tried, rng) for _ in range(trees)]
    widest = max(map(len, grown))
    feature = np.full((trees, widest), -1, dtype=np.int16)
    split, value = np.zeros((trees, widest)), np.zeros((trees, widest))
    left = np.zeros((trees, widest), dtype=np.int32)
    for at, tree in enumerate(grown):
        for node, (asked, where, child, mean) in enumerate(tree):
            feature[at, node], split[at, node] = asked, where
            left[at, node], value[at, node] = child, mean
    return Trees(feature=feature, split=split, left=left, value=value)


_Node = tuple[int, float, int, float]


def _grown(
    rows: Floats, same: Floats, leaf: int, tried: int, rng: np.random.Generator
) -> Sequence[_Node]:
    """Grow one tree: children of a node stand beside each other."""
    nodes: list[_Node] = [(-1, 0.0, 0, float(same.mean()))]
    waiting = [(0, np.arange(len(rows)))]
    while waiting:
        at, places = waiting.pop()
        chosen = _split(rows[places], same[places], leaf, tried, rng)
        if chosen is None:
            continue
        asked, where = chosen
        right = rows[places, asked] > where
        nodes[at] = (asked, where, len(nodes), nodes[at][3])
        for part in (places[~right], places[right]):
            waiting.append((len(nodes), part))
            nodes.append((-1, 0.0, 0, float(same[part].mean())))
    return nodes


def _split(
    rows: Floats, same: Floats, leaf: int, tried: int, rng: np.random.Generator
) -> tuple[int, float] | None:
    """Return the best of some random splits, or None where no split is worth it."""
    if len(rows) < 2 * leaf or same.min() == same.max():
        return None
    asked = rng.choice(rows.shape[1], size=tried, replace=False)
    columns = rows[:, asked]
    low, high = columns.min(axis=0), columns.max(axis=0)
    where = low + rng.random(tried) * (high - low)
    right = columns > where
    n_right = right.sum(axis=0)
    n_left = len(rows) - n_right
    fits = (n_right >= leaf) & (n_left >= leaf)
    if not fits.any():
        return None
    hits = same @ right
    others = same.sum() - hits
    gain = hits**2 / np.maximum(n_right, 1) + others**2 / np.maximum(n_left, 1)
    best = int(np.argmax(np.where(fits, gain, -np.inf)))
    return int(asked[best]), float(where[best])
