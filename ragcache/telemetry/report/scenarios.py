"""The four published workloads, and the operator's own traffic beside them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..figures import Figures

#: Share of a bill that a cached prefix token saves, as the four published rows imply it:
#: saved = s + (1 - s) * p * 0.55 fits all of them.
PREFIX_SHARE = 0.55


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row: `basis` says where the saved share comes from."""

    name: str
    prefix_hit_rate: float | None
    semantic_hit_rate: float | None
    saved_share: float | None
    basis: str = "published"


#: Typical figures as published for prompt caching and semantic caching together.
PUBLISHED = (
    Scenario(
        name="multi-turn reuse only", prefix_hit_rate=0.40, semantic_hit_rate=0.0, saved_share=0.22
    ),
    Scenario(
        name="prefix layout on", prefix_hit_rate=0.70, semantic_hit_rate=0.0, saved_share=0.38
    ),
    Scenario(
        name="prefix and semantic, steady",
        prefix_hit_rate=0.70,
        semantic_hit_rate=0.35,
        saved_share=0.60,
    ),
    Scenario(
        name="prefix and semantic, many repeats",
        prefix_hit_rate=0.80,
        semantic_hit_rate=0.55,
        saved_share=0.75,
    ),
)


def expected_share(prefix: float, served: float) -> float:
    """Return the share of a bill that the published rows imply for two hit rates."""
    return served + (1 - served) * prefix * PREFIX_SHARE


def scenarios(whole: Figures) -> list[Scenario]:
    """Return the published rows, then the traffic's own: prefix caches alone, and both."""
    return [*PUBLISHED, _prefix_alone(whole), _both(whole)]


def _prefix_alone(whole: Figures) -> Scenario:
    prefix = whole.prefix_hit_rate
    share, basis = None, "unknown"
    if whole.uncached > 0:
        share, basis = whole.saved_by_prefix / whole.uncached, "priced"
    elif prefix is not None:
        share, basis = expected_share(prefix, 0.0), "estimated"
    return Scenario(
        name="your traffic, prefix caches alone",
        prefix_hit_rate=prefix,
        semantic_hit_rate=0.0,
        saved_share=share,
        basis=basis,
    )


def _both(whole: Figures) -> Scenario:
    prefix, served = whole.prefix_hit_rate, whole.hit_rate
    share, basis = None, "unknown"
    if whole.priced and not whole.unpriced:
        share, basis = whole.saved_share, "priced"
    elif served is not None:
        share, basis = expected_share(prefix or 0.0, served), "estimated"
    return Scenario(
        name="your traffic, both caches",
        prefix_hit_rate=prefix,
        semantic_hit_rate=whole.semantic_hit_rate,
        saved_share=share,
        basis=basis,
    )
