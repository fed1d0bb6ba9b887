"""A threshold for a wanted error, from judged pairs; and two thresholds on the same traffic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import ConfigError
from .bounds import fixed_upper, is_bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A pair past the gates: how alike, and whether both have one answer.

    `served` tells of live traffic whether the stored answer was served.
    """

    similarity: float
    same: bool
    served: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a threshold would have served.

    Args:
        threshold: Lowest similarity served.
        served: How many.
        wrong: Wrong ones among them.
        total: All pairs or lookups.
        recall: Share of the pairs with one answer that is served.
    """

    threshold: float
    served: int
    wrong: int
    total: int
    recall: float

    @property
    def wrong_hits(self) -> float:
        """Wrong ones as a share of the served ones."""
        return self.wrong / max(self.served, 1)

    @property
    def wrong_all(self) -> float:
        """Wrong ones as a share of all."""
        return self.wrong / max(self.total, 1)

    @property
    def upper_hits(self) -> float:
        """Upper bound of `wrong_hits` at 95 %, one look."""
        return fixed_upper(self.wrong, self.served)

    @property
    def upper_all(self) -> float:
        """Upper bound of `wrong_all` at 95 %, one look."""
        return fixed_upper(self.wrong, self.total)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {name: round(getattr(self, name), 6) for name in _SAID}


_SAID = (
    "threshold",
    "served",
    "wrong",
    "wrong_hits",
    "wrong_all",
    "upper_hits",
    "upper_all",
    "recall",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The chosen threshold and the curve it was chosen from.

    `chosen` is None where no threshold keeps the error; `certified` says that its upper bound,
    not only its count, does.
    """

    chosen: Point | None
    certified: bool
    curve: tuple[Point, ...]
    error: float
    per: Literal["hits", "all"]


def curve_of(judged: Sequence[Judged], *, total: int | None = None) -> tuple[Point, ...]:
    """Return a point for each distinct similarity, the highest first.

    Args:
        judged: Pairs past the gates.
        total: All pairs or lookups, those that no gate let through included.
    """
    everything = len(judged) if total is None else total
    same = sum(each.same for each in judged)
    points: list[Point] = []
    served = wrong = 0
    ranked = sorted(judged, key=lambda each: each.similarity, reverse=True)
    for at, each in enumerate(ranked):
        served += 1
        wrong += int(not each.same)
        if at + 1 < len(ranked) and ranked[at + 1].similarity == each.similarity:
            continue
        points.append(_point(each.similarity, served, wrong, everything, same))
    return tuple(points)


def _point(threshold: float, served: int, wrong: int, everything: int, same: int) -> Point:
    recall = (served - wrong) / same if same else 0.0
    return Point(threshold=threshold, served=served, wrong=wrong, total=everything, recall=recall)


def calibrate(
    judged: Sequence[Judged],
    *,
    error: float,
    per: Literal["hits", "all"] = "all",
    total: int | None = None,
) -> Calibration:
    """Return the lowest threshold whose error rate is at most `error`.

    Where one exists whose upper bound is within it, that one: the threshold is then certified
    for traffic like these pairs. Else the one whose count is, and it is said to be uncertified.

    Raises:
        ConfigError: `error` is no share between 0 and 1.
    """
    if not isinstance(error, (int, float)) or not 0.0 < error < 1.0 or not math.isfinite(error):
        raise ConfigError(f"the wanted error must lie between 0 and 1, not {error!r}")
    curve = curve_of(judged, total=total)
    of = "served" if per == "hits" else "total"
    sure = [point for point in curve if is_bounded(point.wrong, getattr(point, of), error)]
    seen = [point for point in curve if getattr(point, f"wrong_{per}") <= error]
    chosen = max(sure or seen, key=lambda point: point.served, default=None)
    return Calibration(
        chosen=chosen, certified=bool(sure), curve=_thinned(curve), error=error, per=per
    )


def _thinned(curve: Sequence[Point], most: int = 400) -> tuple[Point, ...]:
    step = max(1, len(curve) // most)
    return tuple(curve[::step])


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Two thresholds on the same traffic, and by how much their errors differ.

    `low` and `high` bound the difference of the error rates (second less first) at 95 %.
    """

    first: Point
    second: Point
    difference: float
    low: float
    high: float


def compare(
    judged: Sequence[Judged], first: float, second: float, *, total: int | None = None
) -> Difference:
    """Compare two thresholds on the same judged lookups.

    Every lookup counts for both, so the difference is that of paired observations: its variance
    comes from the lookups on which the two disagree (Newcombe 1998, paired Wald with half an
    observation added to each disagreement).
    """
    everything = len(judged) if total is None else total
    same = sum(each.same for each in judged)
    points = [_at(judged, threshold, everything, same) for threshold in (first, second)]
    lower, higher = min(first, second), max(first, second)
    between = [each for each in judged if lower <= each.similarity < higher]
    only = sum(not each.same for each in between)
    sign = 1.0 if second < first else -1.0
    n = max(everything, 1)
    difference = sign * only / n
    spread = 1.96 * math.sqrt(only + 1.0 - (only * only) / n) / n
    return Difference(
        first=points[0],
        second=points[1],
        difference=difference,
        low=difference - spread,
        high=difference + spread,
    )


def _at(judged: Sequence[Judged], threshold: float, everything: int, same: int) -> Point:
    served = [each for each in judged if each.similarity >= threshold]
    wrong = sum(not each.same for each in served)
    return _point(threshold, len(served), wrong, everything, same)
