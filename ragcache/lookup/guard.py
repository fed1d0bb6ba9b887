"""The guard: holds the rate of wrong semantic hits under a bound, on live traffic.

A pure state machine. Every lookup that found a candidate past all gates is observed with the
candidate's similarity; those whose stored answer was compared with a fresh one are judged.
Below the threshold that comparison is free: the request goes to the model anyway. Above it a
share of hits is verified in the background. Which ones are judged is left to chance, so the
rate of wrong ones at a similarity is that of the judged ones there.

What was seen is counted in `counting`; here is what follows from it. A small tenant without
evidence of its own inherits the next level's; one whose own hits go wrong does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..types import Hit, Miss
from .bounds import anytime_upper
from .counting import BINS, LOWEST, STEP, Evidence, Floats, GuardState, bin_of, levels_of
from .policy import GuardPolicy

#: How often a shown bound may ever fall below the true rate: wider than the 95 % that certify, so
#: that it covers in 95 % of any thousand runs and not only in the long run.
SHOWN_ALPHA = 0.03
_ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What holds now for one partition.

    Args:
        threshold: To be passed to `decide`; infinite where semantic hits are off.
        certified: The rate is bounded by `bad_hit_guard` at 95 %.
        off: No threshold keeps the bound.
        verify_share: Share of hits to verify.
        level: Whose evidence speaks.
        upper_hits: Upper bound of wrong/hits; 1 where nothing was judged.
        upper_all: Upper bound of wrong/all.
        judged: Judged hits behind it.
        wrong: Wrong ones among them.
    """

    threshold: float
    certified: bool
    off: bool
    verify_share: float
    level: str
    upper_hits: float
    upper_all: float
    judged: int
    wrong: int


def standing(state: GuardState, path: Sequence[str], policy: GuardPolicy) -> Standing:
    """Return threshold, certificate and verification share for one partition.

    The most specific level with enough judgements speaks; an alarm anywhere on the path counts,
    since a partition whose own hits go wrong must not hide behind a clean deployment.
    """
    levels = [(name, state.levels[name]) for name in levels_of(*path) if name in state.levels]
    name, evidence = _speaking(levels, policy)
    raised = max((each.raised for _, each in levels), default=0.0)
    found = _threshold(evidence, policy)
    off = found is None or raised > 1.0
    threshold = math.inf if off or found is None else max(found, raised)
    certified = not off and any(_certified(each, policy) for _, each in levels) and not raised
    return Standing(
        threshold=threshold,
        certified=certified,
        off=off,
        verify_share=_share(evidence, policy, certified=certified),
        level=name,
        upper_hits=anytime_upper(evidence.hits_wrong, evidence.hits_judged, alpha=SHOWN_ALPHA),
        upper_all=_upper_all(evidence),
        judged=evidence.hits_judged,
        wrong=evidence.hits_wrong,
    )


def _speaking(levels: Sequence[tuple[str, Evidence]], policy: GuardPolicy) -> tuple[str, Evidence]:
    for name, evidence in reversed(levels):
        if evidence.judged.sum() >= policy.enough:
            return name, evidence
    return levels[0] if levels else ("", Evidence())


def _share(evidence: Evidence, policy: GuardPolicy, *, certified: bool) -> float:
    """Look harder where evidence is thin: half of the first hits, unless none is wanted."""
    if certified:
        return policy.verify_share
    first = evidence.hits_judged < policy.enough
    thin = policy.verify_share_thin
    return max(thin, 0.5) if first and thin else thin


def _certified(evidence: Evidence, policy: GuardPolicy) -> bool:
    if policy.per == "all":
        return evidence.hits_judged > 0 and _upper_all(evidence) <= policy.bad_hit_guard
    upper = anytime_upper(evidence.hits_wrong, evidence.hits_judged, alpha=_ALPHA)
    return upper <= policy.bad_hit_guard


def _upper_all(evidence: Evidence) -> float:
    """Wrong of all lookups: a hit's bound, times the share of lookups that are hits."""
    if not evidence.lookups:
        return 1.0
    upper = anytime_upper(evidence.hits_wrong, evidence.hits_judged, alpha=SHOWN_ALPHA)
    return min(1.0, upper * evidence.hits / evidence.lookups)


def _threshold(evidence: Evidence, policy: GuardPolicy) -> float | None:
    """Return the lowest threshold whose expected errors stay within the bound with a margin.

    None where even the highest does not. Without enough evidence, the uncertified one.
    """
    if evidence.judged.sum() < policy.enough or not policy.auto:
        return policy.uncertified
    served, wrong, noise = _tails(evidence)
    share = _USED * policy.bad_hit_guard
    allowed = share * (evidence.lookups if policy.per == "all" else served)
    fits = wrong + _MARGIN * np.sqrt(noise + _UNSEEN) <= allowed
    lowest = max(bin_of(policy.floor + STEP / 2), 0)
    ok = [at for at in range(lowest, BINS) if bool(fits[at])]
    if not ok:
        return None if _hopeless(wrong, served, policy) else policy.uncertified
    return max(policy.floor, LOWEST + ok[0] * STEP)


#: Share of the bound that a threshold may use up: the rest is for what it cannot foresee.
_USED = 0.72
#: Errors that may have gone unseen: what keeps the first thousand lookups careful.
_UNSEEN = 9.0
#: How many standard errors the expected errors must stay below what is allowed.
_MARGIN = 1.5


def _tails(evidence: Evidence) -> tuple[Floats, Floats, Floats]:
    """For each threshold: hits it would serve, wrong ones to expect, and their variance."""
    judged, wrong = _smooth(evidence.judged), _smooth(evidence.wrong)
    rate = np.divide(wrong, judged, out=np.full(BINS, 0.5), where=judged > 0)
    variance = np.divide(rate * (1 - rate), judged, out=np.full(BINS, 0.25), where=judged > 0)
    seen = evidence.seen
    return _from_top(seen), _from_top(seen * rate), _from_top(seen**2 * variance)


def _smooth(counts: Floats) -> Floats:
    """Pool each bin with its neighbours, two steps either way."""
    return np.asarray(np.convolve(counts, np.ones(5), mode="same"), dtype=np.float64)


def _from_top(counts: Floats) -> Floats:
    summed: Floats = np.cumsum(counts[::-1])[::-1]
    return summed


def _hopeless(wrong: Floats, served: Floats, policy: GuardPolicy) -> bool:
    """Whether even the highest thresholds are clearly wrong too often."""
    top = bin_of(0.98)
    return bool(wrong[top] >= 3 and wrong[top] > 3 * policy.bad_hit_guard * max(served[top], 1.0))


def ruling(found: Hit | Miss, now: Standing) -> Hit | Miss:
    """Return what is served of what `decide` found at the guard's floor.

    `decide` is asked at the lowest threshold, so that a candidate below the guard's own is seen,
    not served, and judged by the fresh answer for free.
    """
    if not isinstance(found, Hit) or found.kind == "exact":
        return found
    if now.off:
        return Miss(reason="guard_off", nearest=found.similarity)
    if found.similarity < now.threshold:
        return Miss(reason="below_threshold", nearest=found.similarity)
    return replace(found, certified=now.certified)
