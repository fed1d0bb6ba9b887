"""The four figures and what stands behind them, summed over requests. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..lookup import GuardPolicy
from ..lookup.bounds import anytime_upper

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums over requests, and the rates that follow. A rate of nothing is None, not zero.

    Args:
        calls: Requests whose own call reached the target.
        input, cached, predicted: Tokens of calls whose cached tokens are known.
        saved_input, saved_output: Tokens of calls that a hit or a shared call spared.
        spent, uncached: US dollars of calls, as paid and without any prefix cache.
        spared: US dollars of the calls that were spared; lost: the share of it in bad hits.
        verification: US dollars paid for checking hits.
        unpriced: Requests whose money is unknown.
        judged, wrong: Hits verified at random, and those found wrong.
        reported: Hits that users said were bad.
    """

    requests: int = 0
    hits_exact: int = 0
    hits_semantic: int = 0
    stale: int = 0
    bypassed: int = 0
    collapsed: int = 0
    calls: int = 0
    errors: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    predicted: int = 0
    saved_input: int = 0
    saved_output: int = 0
    spent: float = 0.0
    uncached: float = 0.0
    spared: float = 0.0
    unpriced: int = 0
    judged: int = 0
    wrong: int = 0
    reported: int = 0
    lost: float = 0.0
    verification: float = 0.0
    called_ttft_s: float = 0.0
    called_ttfts: int = 0
    hit_ttft_s: float = 0.0
    hit_ttfts: int = 0

    @property
    def hits(self) -> int:
        """Requests that were answered from the cache."""
        return self.hits_exact + self.hits_semantic

    @property
    def prefix_hit_rate(self) -> float | None:
        """Input tokens that the target served from its own cache, of those it was sent."""
        return _ratio(self.cached, self.input)

    @property
    def hit_rate(self) -> float | None:
        """Requests answered from the cache, of all."""
        return _ratio(self.hits, self.requests)

    @property
    def semantic_hit_rate(self) -> float | None:
        """Requests answered by the answer to another question of the same meaning, of all."""
        return _ratio(self.hits_semantic, self.requests)

    @property
    def bad_hit_rate(self) -> float | None:
        """Semantic hits known to be bad, of all semantic hits; most are never judged."""
        return _ratio(self.wrong + self.reported, self.hits_semantic)

    @property
    def wrong_of_judged(self) -> float | None:
        """Hits found wrong, of those verified at random: the estimate of the true rate."""
        return _ratio(self.wrong, self.judged)

    @property
    def bad_hit_bound(self) -> float:
        """Upper bound of the true rate of bad hits at 95 %, however often it is looked at."""
        return anytime_upper(self.wrong, self.judged)

    @property
    def bad_of_all_bound(self) -> float:
        """Upper bound of the share of all requests that a bad hit answered, at 95 %."""
        if not self.hits_semantic or not self.requests:
            return 0.0
        return min(1.0, self.bad_hit_bound * self.hits_semantic / self.requests)

    @property
    def certified(self) -> bool:
        """Whether the bound of bad hits lies within what the guard holds by default."""
        return self.bad_hit_bound <= GuardPolicy().bad_hit_guard

    @property
    def called_ttft_mean_s(self) -> float | None:
        """Mean time to the first token of a call."""
        return _ratio(self.called_ttft_s, self.called_ttfts)

    @property
    def hit_ttft_mean_s(self) -> float | None:
        """Mean time to the first token of a hit."""
        return _ratio(self.hit_ttft_s, self.hit_ttfts)

    @property
    def ttft_saved_s(self) -> float | None:
        """Seconds that an asker waits less for the first token of a hit than of a call."""
        called, hit = self.called_ttft_mean_s, self.hit_ttft_mean_s
        return None if called is None or hit is None else called - hit

    @property
    def priced(self) -> bool:
        """Whether any money is known."""
        return self.uncached > 0 or self.spared > 0

    @property
    def saved_by_prefix(self) -> float:
        """US dollars; negative where writing to a prefix cache cost more than it gave."""
        return self.uncached - self.spent

    @property
    def saved_by_hits(self) -> float:
        """US dollars, less what bad hits had seemed to save."""
        return self.spared - self.lost

    @property
    def saved(self) -> float:
        """US dollars of both caches, less what checking hits cost; may be negative."""
        return self.saved_by_prefix + self.saved_by_hits - self.verification

    @property
    def saved_share(self) -> float | None:
        """The share of the bill that was saved."""
        return _ratio(self.saved, self.uncached + self.spared)


_NAMES = tuple(field.name for field in fields(Figures))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def total(rows: Iterable[Row]) -> Figures:
    """Return the sums over rows of the hours table."""
    sums: dict[str, Any] = {field.name: field.default for field in fields(Figures)}
    for row in rows:
        for name in _NAMES:
            sums[name] += row[name]
    return Figures(**sums)


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, Figures]:
    """Return the sums for each value of a key, in the order the values came."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return {value: total(part) for value, part in found.items()}


def plain(figures: Figures) -> dict[str, Any]:
    """Return sums and rates as JSON values."""
    rates = (
        "prefix_hit_rate",
        "hit_rate",
        "semantic_hit_rate",
        "bad_hit_rate",
        "wrong_of_judged",
        "bad_hit_bound",
        "bad_of_all_bound",
        "certified",
        "called_ttft_mean_s",
        "hit_ttft_mean_s",
        "ttft_saved_s",
        "saved_share",
    )
    money = ("saved_by_prefix", "saved_by_hits", "saved")
    return {
        **{name: getattr(figures, name) for name in (*_NAMES, *rates)},
        **{name: getattr(figures, name) if figures.priced else None for name in money},
    }


# --- causes ------------------------------------------------------------------------------------


def causes_of_misses(recent: Iterable[Row]) -> list[tuple[str, int]]:
    """Return why requests went forward, the most frequent first."""
    reasons = Counter(
        row["reason"] or "unknown" for row in recent if not row["status"].startswith("hit")
    )
    return reasons.most_common()


def causes_of_lost_prefix(recent: Iterable[Row]) -> list[tuple[str, int]]:
    """Return how many predicted tokens were computed again, by cause, the most first."""
    lost: Counter[str] = Counter()
    for row in recent:
        predicted, cached = row["predicted"], row["cached"]
        if predicted is not None and cached is not None and "target" in row["seconds"]:
            lost[row["cause"] or "unknown"] += max(0, predicted - cached)
    return [(cause, tokens) for cause, tokens in lost.most_common() if tokens]
