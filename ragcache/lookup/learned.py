"""A second opinion fitted on a team's own labelled pairs, at run time; none is shipped.

The mean of two that err differently, as log odds: random trees over what the gates, the
alignment and the letters say of a pair, and a logistic regression that also weighs single words.
It ranks better than the similarity where labels are many and noisy, as in community questions;
on made-to-measure traps the gates do as well without it, and they keep their veto.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .features import Floats, Vocabulary, features, vocabulary
from .reading import Reading
from .trees import Trees, grow

SCHEMA = 2
#: Fewest pairs of either label from which anything can be fitted.
FEWEST = 50
#: How much the logistic regression says beside the trees.
_WEIGHT = 0.7
#: Strength of the prior "no feature matters", against one pair.
_PRIOR = 20.0
#: Single words that the trees also see: they drown in more.
_WORDS_IN_TREES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A logistic regression over features brought to mean 0 and deviation 1."""

    mean: Floats
    scale: Floats
    weight: Floats
    bias: float

    def log_odds(self, rows: Floats) -> Floats:
        """Return the log odds of each row."""
        found: Floats = ((rows - self.mean) / self.scale) @ self.weight + self.bias
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A fitted second opinion.

    Args:
        embedder: Whose similarities and token vectors it was fitted to.
        known: The words it knows.
        trees, line: Its two parts.
    """

    embedder: str
    known: Vocabulary
    trees: Trees
    line: Line

    def score(self, stored: Reading, asked: Reading, similarity: float) -> float:
        """Return the estimated probability that both have the same answer."""
        return float(self.scores([(stored, asked, similarity)])[0])

    def scores(self, pairs: Sequence[tuple[Reading, Reading, float]]) -> Floats:
        """Return the estimate for each pair."""
        rows = np.array([features(self.known, *pair) for pair in pairs])
        means = np.clip(self.trees.means(_for_trees(rows, self.known)), 0.001, 0.999)
        together = np.log(means / (1 - means)) + _WEIGHT * self.line.log_odds(rows)
        estimate: Floats = 1 / (1 + np.exp(-np.clip(together / (1 + _WEIGHT), -30, 30)))
        return estimate

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "schema": SCHEMA,
            "embedder": self.embedder,
            "known": self.known.as_json(),
            "trees": self.trees.as_json(),
            "line": {
                "mean": self.line.mean.tolist(),
                "scale": self.line.scale.tolist(),
                "weight": self.line.weight.tolist(),
                "bias": self.line.bias,
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ranker:
        """Return what was fitted. Raises KeyError, TypeError or ValueError for anything else."""
        if value["schema"] != SCHEMA:
            raise ValueError("it is of another version: run `ragcache calibrate` again")
        line = value["line"]
        mean, scale, weight = (
            np.asarray(line[name], dtype=np.float64) for name in ("mean", "scale", "weight")
        )
        if not mean.shape == scale.shape == weight.shape:
            raise ValueError("a weight for each feature is expected")
        return cls(
            embedder=str(value["embedder"]),
            known=Vocabulary.from_json(value["known"]),
            trees=Trees.from_json(value["trees"]),
            line=Line(mean=mean, scale=scale, weight=weight, bias=float(line["bias"])),
        )


def fit(
    pairs: Sequence[tuple[Reading, Reading, float]],
    same: NDArray[np.bool_],
    *,
    embedder: str = "",
    trees: int = 200,
    seed: int = 0,
) -> Ranker:
    """Fit a second opinion on labelled pairs.

    Args:
        pairs: Stored and asked question, and how alike they are.
        same: Whether each has one answer.
        embedder: Id of the embedder that the readings come from.
        trees: How many trees.
        seed: Of the random splits.

    Raises:
        ConfigError: Fewer than 50 pairs of either label.
    """
    right = int(same.sum())
    if min(right, len(same) - right) < FEWEST:
        raise ConfigError(
            f"a second opinion needs {FEWEST} pairs of either label at least: these are {right} "
            f"with the same answer and {len(same) - right} with another"
        )
    known = vocabulary((stored, asked) for stored, asked, _ in pairs)
    rows = np.array([features(known, *pair) for pair in pairs])
    return Ranker(
        embedder=embedder,
        known=known,
        trees=grow(_for_trees(rows, known), same, trees=trees, seed=seed),
        line=fit_line(rows, same),
    )


def _for_trees(rows: Floats, known: Vocabulary) -> Floats:
    """The features without most of the single words."""
    told = len(known.one_side) + len(known.both_sides)
    last = rows.shape[1] - told + min(_WORDS_IN_TREES, len(known.one_side))
    return rows[:, :last]


def fit_line(rows: Floats, same: NDArray[np.bool_]) -> Line:
    """Fit a logistic regression by Newton's steps, with a Gaussian prior on the weights."""
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    x = np.column_stack([(rows - mean) / scale, np.ones(len(rows))])
    prior = np.full(x.shape[1], _PRIOR)
    prior[-1] = 1e-6
    weight = np.zeros(x.shape[1])
    for _ in range(25):
        odds = 1 / (1 + np.exp(-np.clip(x @ weight, -30, 30)))
        slope = x.T @ (odds - same) + prior * weight
        curve = (x * (odds * (1 - odds))[:, None]).T @ x + np.diag(prior)
        step = np.linalg.solve(curve, slope)
        weight = weight - step
        if float(np.abs(step).max()) < 1e-6:
            break
    return Line(mean=mean, scale=scale, weight=weight[:-1], bias=float(weight[-1]))
