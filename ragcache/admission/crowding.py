"""Against floods: write rates, crowded neighbourhoods and entries that fit everything."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import ConfigError
from ..types import Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """How many entries may be written: `burst` at once, `per_s` in the long run.

    Raises:
        ConfigError: A value is not above zero.
    """

    per_s: float
    burst: float

    def __post_init__(self) -> None:
        if not self.per_s > 0 or not self.burst >= 1:
            raise ConfigError("a rate limit needs per_s above 0 and burst of at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A token bucket: what is left, as of a moment in seconds of a monotonic clock."""

    tokens: float
    at_s: float


def full(limit: RateLimit, now_s: float) -> Bucket:
    """Return the bucket of a principal not seen before."""
    return Bucket(tokens=limit.burst, at_s=now_s)


def take(
    bucket: Bucket, limit: RateLimit, now_s: float, *, cost: float = 1.0
) -> tuple[Bucket, bool]:
    """Return the bucket after one write was asked for, and whether it may be done.

    A refused write costs nothing; a clock that went back refills nothing.
    """
    passed = max(0.0, now_s - bucket.at_s)
    tokens = min(limit.burst, bucket.tokens + passed * limit.per_s)
    filled = replace(bucket, tokens=tokens, at_s=max(now_s, bucket.at_s))
    if tokens < cost:
        return filled, False
    return replace(filled, tokens=tokens - cost), True


def is_crowded(own: Sequence[float], *, radius: float, most: int) -> bool:
    """Return whether one principal holds a neighbourhood already.

    Without such a cap one writer can place so many entries around a popular question that
    nothing else is among the nearest.

    Args:
        own: How alike the principal's own entries are to the one to be stored.
        radius: From which similarity on they are near.
        most: So many may be.
    """
    return sum(similarity >= radius for similarity in own) >= most


def hubs(spread: Mapping[str, float], *, z: float = 6.0, least: float = 5.0) -> frozenset[str]:
    """Return the entries that are hit by too many different questions.

    Robust z-score over the median and the median absolute deviation, as HubScan does
    (arXiv 2602.22427): a planted hub does not move its own yardstick.

    Args:
        spread: For each entry, how many different questions it was nearest to.
        z: Deviations from the median that are too many.
        least: No entry with less spread is a hub.
    """
    if len(spread) < 3:
        return frozenset()
    middle = statistics.median(spread.values())
    deviation = statistics.median(abs(value - middle) for value in spread.values())
    scale = max(1.4826 * deviation, 0.5)
    return frozenset(
        name for name, value in spread.items() if value >= least and (value - middle) / scale > z
    )


def is_hub_vector(
    vector: Vector, sentinels: Sequence[Vector], *, radius: float = 0.70, most: float = 0.15
) -> bool:
    """Return whether a question is near too many unrelated sentinel questions.

    Args:
        vector: Of the question to be stored, unit length.
        sentinels: Vectors of questions of many kinds, unit length.
        radius: From which similarity on they are near; where an embedder finds the sentinels
            themselves more alike than that, only what exceeds nearly all of their own likeness.
        most: Share of sentinels that may be near.
    """
    if len(sentinels) < 2:
        return False
    stacked = np.stack(list(sentinels))
    among = (stacked @ stacked.T)[np.triu_indices(len(sentinels), k=1)]
    near = stacked @ vector >= max(radius, float(np.quantile(among, 0.99)))
    return bool(near.mean() > most)
