"""A second opinion fitted on a team's own labelled pairs, at run time; none is shipped.

The mean of three that err differently, as log odds: random trees over what the gates, the
alignment and the letters say of a pair, a logistic regression that also weighs single words, and
one over the components of the sentence vectors, which has to be held back most.
It ranks better than the similarity where labels are many and noisy, as in community questions;
on made-to-measure traps the gates do as well without it, and they keep their veto. One gate goes
by how a word is written: that of names. It may be overruled by an opinion that was fitted on enough
pairs of either label whose names differ, and so knows what that means among these questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .features import Floats, Vocabulary, features, senses, vocabulary
from .gates import entities_differ
from .matching import compare
from .reading import Reading
from .trees import Trees, grow

SCHEMA = 4
#: Fewest pairs of either label from which anything can be fitted, and names can be learned.
FEWEST = 50
#: How much the logistic regressions say beside the trees: over features, and over components.
_WEIGHT, _SENSE_WEIGHT = 1.0, 0.4
#: Strength of their prior "nothing matters", against one pair.
_PRIOR, _SENSE_PRIOR = 20.0, 1000.0
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

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "weight": self.weight.tolist(),
            "bias": self.bias,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Line:
        """Return the line. Raises KeyError, TypeError or ValueError for anything else."""
        mean, scale, weight = (
            np.asarray(value[name], dtype=np.float64) for name in ("mean", "scale", "weight")
        )
        if not mean.shape == scale.shape == weight.shape:
            raise ValueError("a weight for each feature is expected")
        return cls(mean=mean, scale=scale, weight=weight, bias=float(value["bias"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """A fitted second opinion.

    Args:
        embedder: Whose similarities and token vectors it was fitted to.
        known: The words it knows.
        trees, line, sense: Its parts; no `sense` where pairs came without sentence vectors.
        names: Whether it has learned names, and may overrule their gate.
    """

    embedder: str
    known: Vocabulary
    trees: Trees
    line: Line
    sense: Line | None = None
    names: bool = False

    def score(self, stored: Reading, asked: Reading, similarity: float) -> float:
        """Return the estimated probability that both have the same answer."""
        return float(self.scores([(stored, asked, similarity)])[0])

    def scores(self, pairs: Sequence[tuple[Reading, Reading, float]]) -> Floats:
        """Return the estimate for each pair."""
        rows = np.array([features(self.known, *pair) for pair in pairs])
        means = np.clip(self.trees.means(_for_trees(rows, self.known)), 0.001, 0.999)
        together = np.log(means / (1 - means)) + _WEIGHT * self.line.log_odds(rows)
        weight = 1 + _WEIGHT
        if self.sense is not None:
            together = together + _SENSE_WEIGHT * _of_senses(self.sense, pairs)
            weight += _SENSE_WEIGHT
        estimate: Floats = 1 / (1 + np.exp(-np.clip(together / weight, -30, 30)))
        return estimate

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "schema": SCHEMA,
            "embedder": self.embedder,
            "known": self.known.as_json(),
            "trees": self.trees.as_json(),
            "line": self.line.as_json(),
            "sense": self.sense and self.sense.as_json(),
            "names": self.names,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Ranker:
        """Return what was fitted. Raises KeyError, TypeError or ValueError for anything else."""
        if value["schema"] != SCHEMA:
            raise ValueError("it is of another version: run `ragcache calibrate` again")
        sense = value["sense"]
        return cls(
            embedder=str(value["embedder"]),
            known=Vocabulary.from_json(value["known"]),
            trees=Trees.from_json(value["trees"]),
            line=Line.from_json(value["line"]),
            sense=None if sense is None else Line.from_json(sense),
            names=value["names"] is True,
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
        sense=_fit_senses(pairs, same),
        names=_tells_names(pairs, same),
    )


def _tells_names(pairs: Sequence[tuple[Reading, Reading, float]], same: NDArray[np.bool_]) -> bool:
    """Whether enough pairs of either label differ by a name."""
    differ = np.array([entities_differ(compare(stored, asked)) for stored, asked, _ in pairs])
    right = int((differ & same).sum())
    return min(right, int(differ.sum()) - right) >= FEWEST


def _fit_senses(
    pairs: Sequence[tuple[Reading, Reading, float]], same: NDArray[np.bool_]
) -> Line | None:
    rows = [senses(stored, asked) for stored, asked, _ in pairs]
    told = [each for each in rows if each is not None]
    if len(told) < len(rows) or len({len(each) for each in told}) != 1:
        return None
    return fit_line(np.array(told), same, prior=_SENSE_PRIOR)


def _of_senses(line: Line, pairs: Sequence[tuple[Reading, Reading, float]]) -> Floats:
    """Return the log odds of each pair; 0 where there are no vectors to tell it from."""
    rows = [senses(stored, asked) for stored, asked, _ in pairs]
    none = np.full(len(line.mean), np.nan)
    told = np.array([none if each is None or len(each) != len(none) else each for each in rows])
    return np.nan_to_num(line.log_odds(told))


def _for_trees(rows: Floats, known: Vocabulary) -> Floats:
    """The features without most of the single words."""
    told = len(known.one_side) + len(known.both_sides)
    last = rows.shape[1] - told + min(_WORDS_IN_TREES, len(known.one_side))
    return rows[:, :last]


def fit_line(rows: Floats, same: NDArray[np.bool_], *, prior: float = _PRIOR) -> Line:
    """Fit a logistic regression by Newton's steps, with a Gaussian prior on the weights."""
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    x = np.column_stack([(rows - mean) / scale, np.ones(len(rows))])
    priors = np.full(x.shape[1], prior)
    priors[-1] = 1e-6
    weight = np.zeros(x.shape[1])
    for _ in range(25):
        odds = 1 / (1 + np.exp(-np.clip(x @ weight, -30, 30)))
        slope = x.T @ (odds - same) + priors * weight
        curve = (x * (odds * (1 - odds))[:, None]).T @ x + np.diag(priors)
        step = np.linalg.solve(curve, slope)
        weight = weight - step
        if float(np.abs(step).max()) < 1e-6:
            break
    return Line(mean=mean, scale=scale, weight=weight[:-1], bias=float(weight[-1]))
