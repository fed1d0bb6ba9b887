"""Thresholds and second opinions from labelled pairs: what `ragcache calibrate` does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ..errors import ConfigError
from ..lookup import LookupPolicy
from ..lookup.calibration import Calibration, Judged, calibrate
from ..lookup.learned import Ranker, fit
from ..lookup.reading import Reading
from ..protocols import Embedder
from .answers import Outcome, Pair, outcomes_of
from .questions import Asked, cosine, understood

Per = Literal["hits", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A second opinion, and the threshold for its score on pairs that it was not fitted on."""

    ranker: Ranker
    found: Calibration
    fitted_on: int


def from_pairs(
    pairs: Sequence[Pair],
    embedder: Embedder,
    *,
    error: float,
    per: Per = "all",
    policy: LookupPolicy | None = None,
) -> tuple[Calibration, dict[tuple[str, str], Calibration]]:
    """Return the threshold for a wanted error over labelled pairs, past the shipped gates.

    With it one for each namespace and language of the pairs. The right one lies far apart: 0.81
    for one collection of questions, 0.98 for another. A pair's language is that of its stored
    question.
    """
    lowest = replace(policy or LookupPolicy(), threshold=0.0)
    asked = understood([text for p in pairs for text in (p.stored, p.asked)], embedder)
    outcomes = outcomes_of(pairs, embedder, policy=lowest, known=asked)
    parts: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        language = asked[outcome.pair.stored].reading.language
        parts.setdefault((outcome.pair.namespace, language), []).append(outcome)
    by_part = {part: _calibrated(found, error, per) for part, found in sorted(parts.items())}
    return _calibrated(outcomes, error, per), by_part


def _calibrated(outcomes: Sequence[Outcome], error: float, per: Per) -> Calibration:
    judged = [
        Judged(similarity=outcome.similarity, same=outcome.pair.same)
        for outcome in outcomes
        if not outcome.reason
    ]
    return calibrate(judged, error=error, per=per, total=len(outcomes))


# --- a second opinion --------------------------------------------------------------------------


def ranker_from_pairs(
    pairs: Sequence[Pair],
    embedder: Embedder,
    *,
    trees: int = 200,
    seed: int = 0,
    known: Mapping[str, Asked] | None = None,
) -> Ranker:
    """Fit a second opinion on labelled pairs: nothing of it is shipped.

    Raises:
        ConfigError: Fewer than 50 pairs of either label.
    """
    asked = known or understood([text for p in pairs for text in (p.stored, p.asked)], embedder)
    rows: list[tuple[Reading, Reading, float]] = [
        (
            asked[pair.stored].reading,
            asked[pair.asked].reading,
            cosine(asked[pair.stored], asked[pair.asked]),
        )
        for pair in pairs
    ]
    same = np.array([pair.same for pair in pairs], dtype=bool)
    return fit(rows, same, embedder=embedder.id, trees=trees, seed=seed)


def fitted(
    pairs: Sequence[Pair],
    embedder: Embedder,
    *,
    error: float,
    per: Per = "all",
    policy: LookupPolicy | None = None,
    trees: int = 200,
) -> Fitted:
    """Fit a second opinion on half of the pairs, and find its threshold on the other half.

    No question is in both halves, nor one that shares a pair with it: the error is that of
    questions it has never seen.

    Raises:
        ConfigError: Too few pairs, or `error` is no share between 0 and 1.
    """
    lowest = replace(policy or LookupPolicy(), threshold=0.0)
    first, second = halves(pairs)
    ranker = ranker_from_pairs(first, embedder, trees=trees)
    if not second:
        raise ConfigError("all pairs hang together by a question: none is left to measure on")
    outcomes = outcomes_of(second, embedder, policy=lowest, ranker=ranker)
    return Fitted(ranker=ranker, found=_calibrated(outcomes, error, per), fitted_on=len(first))


def halves(pairs: Sequence[Pair], *, seed: int = 0) -> tuple[list[Pair], list[Pair]]:
    """Split pairs by question: what hangs together by a question stays together."""
    groups = _groups(pairs)
    first: list[Pair] = []
    second: list[Pair] = []
    for pair in pairs:
        name = f"{seed}:{_root(groups, pair.stored)}"
        even = hashlib.sha256(name.encode()).digest()[0] % 2 == 0
        (first if even else second).append(pair)
    return first, second


def _groups(pairs: Sequence[Pair]) -> dict[str, str]:
    above: dict[str, str] = {}
    for pair in pairs:
        above[_root(above, pair.stored)] = _root(above, pair.asked)
    return above


def _root(above: dict[str, str], question: str) -> str:
    while (up := above.setdefault(question, question)) != question:
        above[question] = above[up]
        question = up
    return question


# --- as plain values ---------------------------------------------------------------------------


def as_json(
    found: Calibration, parts: Mapping[tuple[str, str], Calibration] | None = None
) -> dict[str, Any]:
    """Return a calibration as plain JSON values, with one for each namespace and language."""
    plain = {
        "threshold": found.chosen.threshold if found.chosen else None,
        "certified": "certified" if found.certified else "not certified",
        "error": found.error,
        "per": found.per,
        "chosen": found.chosen.as_json() if found.chosen else None,
        "curve": [point.as_json() for point in found.curve],
    }
    if parts is not None:
        plain["parts"] = [
            {"namespace": namespace, "language": language, **as_json(part)}
            for (namespace, language), part in parts.items()
        ]
    return plain
