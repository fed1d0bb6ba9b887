"""A second opinion fitted on a team's own labelled pairs, at run time; none is shipped.

Extremely randomised trees (Geurts, Ernst and Wehenkel 2006) over what the gates and the
alignment say of a pair. It ranks better than the similarity alone where labels are many and
noisy, as in community questions; on made-to-measure traps the gates do as well without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .alignment import similarities, weakest
from .gates import GATES
from .matching import compare, function_likeness
from .reading import Reading

SCHEMA = 1

Floats = NDArray[np.float64]


def features(stored: Reading, asked: Reading, similarity: float) -> list[float]:
    """Return what is known of a pair, as numbers."""
    c = compare(stored, asked)
    cosines = similarities(c)
    worst = weakest(c) if c.open_left or c.open_right else 1.0
    rows, columns = _best(cosines)
    mine, theirs = set(stored.stems), set(asked.stems)
    texts = stored.text.casefold().split(), asked.text.casefold().split()
    lengths = sorted(map(len, texts))
    one, other = _grams(stored.text), _grams(asked.text)
    return [
        similarity,
        worst if worst is not None else -1.0,
        min(rows[0], columns[0]),
        min(rows[1], columns[1]),
        float(len(c.open_left) + len(c.open_right)),
        float(max(len(c.open_left), len(c.open_right))),
        float(len(c.left) + len(c.right)),
        _ratio(len(mine & theirs), len(mine | theirs)),
        _ratio(len(one & other), len(one | other)),
        _ratio(len(set(texts[0]) & set(texts[1])), len(set(texts[0]) | set(texts[1]))),
        float(len(set(texts[0]) ^ set(texts[1]))),
        _in_order(texts[0], texts[1]),
        function_likeness(stored, asked),
        float(lengths[0]),
        float(lengths[1]),
        float(lengths[1] - lengths[0]),
        float(len(stored.content) + len(asked.content)),
        float(stored.question == asked.question),
        float(bool(texts[0] and texts[1] and texts[0][0] == texts[1][0])),
        float(abs(stored.text.count("?") - asked.text.count("?"))),
        *(float(differs(c)) for _, differs in GATES),
    ]


def _best(cosines: NDArray[np.float32] | None) -> tuple[tuple[float, float], tuple[float, float]]:
    if cosines is None:
        return (-1.0, -1.0), (-1.0, -1.0)
    rows, columns = cosines.max(axis=1), cosines.max(axis=0)
    return (float(rows.mean()), float(rows.min())), (float(columns.mean()), float(columns.min()))


def _grams(text: str) -> set[str]:
    padded = f" {text.casefold().strip(' ?.!')} "
    return {padded[at : at + 3] for at in range(len(padded) - 2)}


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _in_order(one: Sequence[str], other: Sequence[str]) -> float:
    """The longest common subsequence as a share of the longer text."""
    row = [0] * (len(other) + 1)
    for word in one:
        corner = 0
        for at, facing in enumerate(other):
            above = row[at + 1]
            row[at + 1] = corner + 1 if word == facing else max(above, row[at])
            corner = above
    return _ratio(row[-1], max(len(one), len(other)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """Fitted trees as arrays: one row a tree, one column a node; leaves have feature -1."""

    feature: NDArray[np.int16]
    split: Floats
    left: NDArray[np.int32]
    value: Floats

    def score(self, stored: Reading, asked: Reading, similarity: float) -> float:
        """Return the estimated probability that both have the same answer."""
        return float(self.scores(np.array([features(stored, asked, similarity)]))[0])

    def scores(self, rows: Floats) -> Floats:
        """Return the estimate for each row of features."""
        trees = np.arange(len(self.feature))
        found = np.empty(len(rows))
        for at, row in enumerate(rows):
            nodes = np.zeros(len(trees), dtype=np.int32)
            while True:
                asked = self.feature[trees, nodes]
                inner = asked >= 0
                if not inner.any():
                    break
                right = row[np.maximum(asked, 0)] > self.split[trees, nodes]
                nodes = np.where(inner, self.left[trees, nodes] + right, nodes)
            found[at] = self.value[trees, nodes].mean()
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the trees as plain JSON values."""
        return {
            "schema": SCHEMA,
            "feature": self.feature.tolist(),
            "split": np.round(self.split, 5).tolist(),
            "left": self.left.tolist(),
            "value": np.round(self.value, 4).tolist(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ranker:
        """Return the trees. Raises KeyError or ValueError for anything else."""
        if value["schema"] != SCHEMA:
            raise ValueError("a ranker of another version: run `ragcache calibrate` again")
        return cls(
            feature=np.asarray(value["feature"], dtype=np.int16),
            split=np.asarray(value["split"], dtype=np.float64),
            left=np.asarray(value["left"], dtype=np.int32),
            value=np.asarray(value["value"], dtype=np.float64),
        )


def fit(
    rows: Floats, same: NDArray[np.bool_], *, trees: int = 200, leaf: int = 8, seed: int = 0
) -> Ranker:
    """Fit trees to labelled pairs.

    Args:
        rows: Features, one row a pair.
        same: Whether the pair has one answer.
        trees: How many trees.
        leaf: Fewest pairs in a leaf.
        seed: Of the random splits.
    """
    rng = np.random.default_rng(seed)
    grown = [_grown(rows, same.astype(np.float64), leaf, rng) for _ in range(trees)]
    widest = max(len(tree) for tree in grown)
    feature = np.full((trees, widest), -1, dtype=np.int16)
    split, value = np.zeros((trees, widest)), np.zeros((trees, widest))
    left = np.zeros((trees, widest), dtype=np.int32)
    for at, tree in enumerate(grown):
        for node, (asked, where, child, mean) in enumerate(tree):
            feature[at, node], split[at, node] = asked, where
            left[at, node], value[at, node] = child, mean
    return Ranker(feature=feature, split=split, left=left, value=value)


_Node = tuple[int, float, int, float]


def _grown(rows: Floats, same: Floats, leaf: int, rng: np.random.Generator) -> list[_Node]:
    """Grow one tree: children of a node stand beside each other."""
    nodes: list[_Node] = [(-1, 0.0, 0, float(same.mean()))]
    waiting = [(0, np.arange(len(rows)))]
    tried = max(1, math.ceil(rows.shape[1] * 0.3))
    while waiting:
        at, places = waiting.pop()
        chosen = _split(rows[places], same[places], leaf, tried, rng)
        if chosen is None:
            continue
        asked, where = chosen
        right = rows[places, asked] > where
        child = len(nodes)
        nodes[at] = (asked, where, child, nodes[at][3])
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
    hits = same @ right
    others = same.sum() - hits
    fits = (n_right >= leaf) & (n_left >= leaf)
    if not fits.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(fits, hits**2 / n_right + others**2 / n_left, -np.inf)
    best = int(np.argmax(gain))
    return int(asked[best]), float(where[best])
