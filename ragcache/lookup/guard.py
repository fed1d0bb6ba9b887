"""The guard: holds the rate of wrong semantic hits under a bound, on live traffic.

A pure state machine. Every lookup that found a candidate past all gates is observed with the
candidate's similarity; those whose stored answer was compared with a fresh one are judged.
Below the threshold that comparison is free: the request goes to the model anyway. Above it a
share of hits is verified in the background. Which ones are judged is left to chance, so the
rate of wrong ones at a similarity is that of the judged ones there.

Evidence is kept at several levels at once (partition, namespace, deployment). A small tenant
without evidence of its own inherits the next level's; one whose own hits go wrong does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..types import Hit, Miss
from .bounds import anytime_upper
from .policy import check_share

#: Similarities are counted in steps of 0.005 from here up to 1.
LOWEST = 0.5
STEP = 0.005
BINS = round((1.0 - LOWEST) / STEP) + 1
#: Confidence with which a bound is shown, a little wider than the 95 % that certify.
_SHOWN_ALPHA = 0.04
_ALPHA = 0.05
#: A wager of this size against "the rate is still within the bound" is an alarm.
_ALARM = 200.0
#: The rate that the alarm bets on, as a multiple of the bound.
_ALARM_FACTOR = 10.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPolicy:
    """What the guard holds, and how hard it looks.

    Args:
        bad_hit_guard: Highest rate of wrong answers served.
        per: "hits": wrong of all semantic hits; "all": wrong of all lookups.
        floor: Lowest threshold it may choose.
        uncertified: Threshold where evidence is thin.
        verify_share: Share of hits verified once the rate is certified.
        verify_share_thin: The same before that.
        enough: Judgements from which a level speaks for itself.
        auto: Whether the guard may lower the threshold under `uncertified` by evidence.

    Raises:
        ConfigError: A value is of the wrong type or out of its range.
    """

    bad_hit_guard: float = 0.005
    per: Literal["hits", "all"] = "hits"
    floor: float = 0.70
    uncertified: float = 0.90
    verify_share: float = 0.05
    verify_share_thin: float = 0.20
    enough: int = 100
    auto: bool = True

    def __post_init__(self) -> None:
        for name in ("bad_hit_guard", "floor", "uncertified", "verify_share", "verify_share_thin"):
            check_share(name, getattr(self, name))
        if not 0.0 < self.bad_hit_guard < 0.5:
            raise ConfigError("bad_hit_guard must lie between 0 and 0.5, both excluded")
        if self.per not in ("hits", "all"):
            raise ConfigError(f"per must be hits or all, not {self.per!r}")
        if isinstance(self.enough, bool) or not isinstance(self.enough, int) or self.enough < 1:
            raise ConfigError(f"enough must be a whole number of at least 1, not {self.enough!r}")


def _empty() -> Floats:
    return np.zeros(BINS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one level has seen.

    Args:
        lookups: All lookups, with a candidate or without.
        seen: Candidates past the gates, by similarity.
        judged, wrong: Judged ones, and wrong ones among them, by similarity.
        hits: Semantic hits served.
        hits_judged, hits_wrong: Verified hits and wrong ones, since the last change.
        alarm: The wager that the rate has left its bound.
        raised: Threshold that an alarm has set; 0 where none has.
        recent: Similarities of the last wrong hits, newest last.
        calm: Judgements without an error since the last alarm.
    """

    lookups: int = 0
    seen: Floats = field(default_factory=_empty)
    judged: Floats = field(default_factory=_empty)
    wrong: Floats = field(default_factory=_empty)
    hits: int = 0
    hits_judged: int = 0
    hits_wrong: int = 0
    alarm: float = 1.0
    raised: float = 0.0
    recent: tuple[float, ...] = ()
    calm: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """Evidence by level: "", "namespace:faq", "namespace:faq/partition:ab12"."""

    levels: Mapping[str, Evidence] = field(default_factory=lambda: MappingProxyType({}))
    verifications: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One lookup.

    Args:
        similarity: Of the best candidate past the gates; None where there was none.
        served: Whether it was served.
        agreed: Whether its answer was the fresh one's; None where nobody compared.
    """

    similarity: float | None = None
    served: bool = False
    agreed: bool | None = None


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


def levels_of(*path: str) -> tuple[str, ...]:
    """Return the levels of a path, deployment first: ("", "faq", "faq/ab12")."""
    return tuple("/".join(path[:depth]) for depth in range(len(path) + 1))


def observe(
    state: GuardState, path: Sequence[str], seen: Observed, policy: GuardPolicy
) -> GuardState:
    """Return the state after one lookup, at every level of its path."""
    levels = dict(state.levels)
    for level in levels_of(*path):
        levels[level] = _after(levels.get(level, Evidence()), seen, policy)
    verified = seen.served and seen.agreed is not None
    return GuardState(
        levels=MappingProxyType(levels), verifications=state.verifications + int(verified)
    )


def judge(
    state: GuardState,
    path: Sequence[str],
    *,
    similarity: float,
    agreed: bool,
    policy: GuardPolicy,
) -> GuardState:
    """Return the state after a hit that was counted when it was served has been judged."""
    levels = dict(state.levels)
    for level in levels_of(*path):
        before = levels.get(level, Evidence())
        counted = _counted(before, similarity, agreed=agreed)
        levels[level] = _judged_hit(counted, similarity, agreed=agreed, policy=policy)
    return GuardState(levels=MappingProxyType(levels), verifications=state.verifications + 1)


def _after(before: Evidence, seen: Observed, policy: GuardPolicy) -> Evidence:
    after = replace(before, lookups=before.lookups + 1, hits=before.hits + int(seen.served))
    if seen.similarity is None:
        return after
    after = replace(after, seen=_added(after.seen, seen.similarity))
    if seen.agreed is None:
        return after
    after = _counted(after, seen.similarity, agreed=seen.agreed)
    if not seen.served:
        return after
    return _judged_hit(after, seen.similarity, agreed=seen.agreed, policy=policy)


def _counted(before: Evidence, similarity: float, *, agreed: bool) -> Evidence:
    after = replace(before, judged=_added(before.judged, similarity))
    return after if agreed else replace(after, wrong=_added(after.wrong, similarity))


def _added(counts: Floats, similarity: float) -> Floats:
    after = counts.copy()
    after[_bin(similarity)] += 1.0
    return after


def _bin(similarity: float) -> int:
    return min(max(math.floor((similarity - LOWEST) / STEP + 1e-6), 0), BINS - 1)


def _judged_hit(
    before: Evidence, similarity: float, *, agreed: bool, policy: GuardPolicy
) -> Evidence:
    """Count a judged hit and move the alarm: a wager that restarts at 1 and pays on errors."""
    against = _allowed_of_hits(before, policy)
    bet = min(_ALARM_FACTOR * against, (1 + against) / 2)
    odds = (1 - bet) / (1 - against) if agreed else bet / against
    after = replace(
        before,
        hits_judged=before.hits_judged + 1,
        hits_wrong=before.hits_wrong + int(not agreed),
        alarm=max(before.alarm, 1.0) * odds,
        calm=before.calm + 1 if agreed else 0,
        recent=before.recent if agreed else (*before.recent, similarity)[-8:],
    )
    if after.alarm >= _ALARM:
        return _alarmed(after, policy)
    return _calmed(after, policy)


def _allowed_of_hits(evidence: Evidence, policy: GuardPolicy) -> float:
    """The bound as a rate of hits: hits that are few among all lookups may err more often."""
    if policy.per == "hits" or not evidence.hits:
        return policy.bad_hit_guard
    return min(policy.bad_hit_guard * evidence.lookups / evidence.hits, 0.25)


def _alarmed(before: Evidence, policy: GuardPolicy) -> Evidence:
    """Raise the threshold above the wrong hits of late and begin to count anew."""
    worst = max(before.recent[-3:], default=policy.uncertified)
    raised = max(before.raised, policy.uncertified, worst) + STEP
    return replace(before, raised=raised, alarm=1.0, hits_judged=0, hits_wrong=0, calm=0)


def _calmed(before: Evidence, policy: GuardPolicy) -> Evidence:
    """Lower a raised threshold by one step for each run of agreement that is long enough."""
    if not before.raised or before.calm < policy.enough:
        return before
    lowered = before.raised - STEP
    return replace(before, raised=lowered if lowered > policy.floor else 0.0, calm=0)


# --- what holds now ----------------------------------------------------------------------------


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
        upper_hits=anytime_upper(evidence.hits_wrong, evidence.hits_judged, alpha=_SHOWN_ALPHA),
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
    """Look harder where evidence is thin: half of the first hits at least."""
    if certified:
        return policy.verify_share
    first = evidence.hits_judged < policy.enough
    return max(policy.verify_share_thin, 0.5) if first else policy.verify_share_thin


def _certified(evidence: Evidence, policy: GuardPolicy) -> bool:
    if policy.per == "all":
        return evidence.hits_judged > 0 and _upper_all(evidence) <= policy.bad_hit_guard
    upper = anytime_upper(evidence.hits_wrong, evidence.hits_judged, alpha=_ALPHA)
    return upper <= policy.bad_hit_guard


def _upper_all(evidence: Evidence) -> float:
    """Wrong of all lookups: a hit's bound, times the share of lookups that are hits."""
    if not evidence.lookups:
        return 1.0
    upper = anytime_upper(evidence.hits_wrong, evidence.hits_judged, alpha=_SHOWN_ALPHA)
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
    lowest = max(_bin(policy.floor + STEP / 2), 0)
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
    top = _bin(0.98)
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


# --- as plain values ---------------------------------------------------------------------------


def state_json(state: GuardState) -> dict[str, Any]:
    """Return the state as plain JSON values, for a store."""
    return {
        "verifications": state.verifications,
        "levels": {name: _evidence_json(each) for name, each in state.levels.items()},
    }


def _evidence_json(evidence: Evidence) -> dict[str, Any]:
    arrays = ("seen", "judged", "wrong")
    plain = ("lookups", "hits", "hits_judged", "hits_wrong", "alarm", "raised", "calm")
    return (
        {name: getattr(evidence, name).tolist() for name in arrays}
        | {name: getattr(evidence, name) for name in plain}
        | {"recent": list(evidence.recent)}
    )


def state_from_json(value: Mapping[str, Any]) -> GuardState:
    """Return the state. Raises KeyError, TypeError or ValueError for anything else."""
    return GuardState(
        verifications=int(value["verifications"]),
        levels=MappingProxyType(
            {str(name): _evidence_from_json(each) for name, each in value["levels"].items()}
        ),
    )


def _evidence_from_json(value: Mapping[str, Any]) -> Evidence:
    arrays = {
        name: np.asarray(value[name], dtype=np.float64) for name in ("seen", "judged", "wrong")
    }
    if any(each.shape != (BINS,) for each in arrays.values()):
        raise ValueError(f"{BINS} counts are expected for each kind")
    return Evidence(
        **arrays,
        lookups=int(value["lookups"]),
        hits=int(value["hits"]),
        hits_judged=int(value["hits_judged"]),
        hits_wrong=int(value["hits_wrong"]),
        alarm=float(value["alarm"]),
        raised=float(value["raised"]),
        calm=int(value["calm"]),
        recent=tuple(map(float, value["recent"])),
    )
