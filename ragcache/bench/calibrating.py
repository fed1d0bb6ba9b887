"""Thresholds from labelled pairs: what `ragcache calibrate` does with a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..lookup import LookupPolicy
from ..lookup.calibration import Calibration, Judged, calibrate
from ..lookup.learned import Ranker, features, fit
from ..protocols import Embedder
from .answers import Pair, outcomes_of
from .questions import cosine, understood


def from_pairs(
    pairs: Sequence[Pair],
    embedder: Embedder,
    *,
    error: float,
    per: Literal["hits", "all"] = "all",
    policy: LookupPolicy | None = None,
) -> Calibration:
    """Return the threshold for a wanted error over labelled pairs, past the shipped gates."""
    lowest = replace(policy or LookupPolicy(), threshold=0.0)
    outcomes = outcomes_of(pairs, embedder, policy=lowest)
    judged = [
        Judged(similarity=outcome.similarity, same=outcome.pair.same)
        for outcome in outcomes
        if not outcome.reason
    ]
    return calibrate(judged, error=error, per=per, total=len(outcomes))


def ranker_from_pairs(
    pairs: Sequence[Pair], embedder: Embedder, *, trees: int = 200, seed: int = 0
) -> Ranker:
    """Fit a second opinion on labelled pairs: nothing of it is shipped."""
    asked = understood([text for p in pairs for text in (p.stored, p.asked)], embedder)
    rows = [
        features(
            asked[pair.stored].reading,
            asked[pair.asked].reading,
            cosine(asked[pair.stored], asked[pair.asked]),
        )
        for pair in pairs
    ]
    same = np.array([pair.same for pair in pairs])
    return fit(np.array(rows), same, trees=trees, seed=seed)


def as_json(found: Calibration) -> dict[str, Any]:
    """Return a calibration as plain JSON values."""
    return {
        "threshold": found.chosen.threshold if found.chosen else None,
        "certified": "certified" if found.certified else "not certified",
        "error": found.error,
        "per": found.per,
        "chosen": found.chosen.as_json() if found.chosen else None,
        "curve": [point.as_json() for point in found.curve],
    }
