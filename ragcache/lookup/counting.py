"""What the guard has seen: counts of lookups, hits and verdicts, at several levels at once.

Evidence is kept for a partition, its namespace and the whole deployment, each for itself. What
happened can be counted later and elsewhere: processes of one deployment keep what they have not
handed in yet and add it to what the others have counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .policy import GuardPolicy

#: Similarities are counted in steps of 0.005 from here up to 1.
LOWEST = 0.5
STEP = 0.005
BINS = round((1.0 - LOWEST) / STEP) + 1
#: A wager of this size against "the rate is still within the bound" is an alarm.
_ALARM = 200.0
#: The rate that the alarm bets on, as a multiple of the bound.
_ALARM_FACTOR = 10.0
#: Partitions are many, each conversation and each principal has its own; all are read and written
#: whenever processes count together.
_LEVELS_MAX = 128

Floats = NDArray[np.float64]


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
    """Evidence by level: "", "namespace:faq", "namespace:faq/partition:ab12".

    The level that something happened in last stands last. A level below the deployment comes to
    be with its first candidate, and the quietest leave where there are too many; what they have
    seen stays counted above them.
    """

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
class Judgement:
    """A verdict on a hit that was counted when it was served."""

    similarity: float
    agreed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that was seen, and where: names from the namespace down."""

    path: tuple[str, ...]
    seen: Observed | Judgement


def levels_of(*path: str) -> tuple[str, ...]:
    """Return the levels of a path, deployment first: ("", "faq", "faq/ab12")."""
    return tuple("/".join(path[:depth]) for depth in range(len(path) + 1))


def observe(
    state: GuardState, path: Sequence[str], seen: Observed | Judgement, policy: GuardPolicy
) -> GuardState:
    """Return the state after one lookup or one verdict, at every level of its path."""
    levels = dict(state.levels)
    for level in levels_of(*path):
        before = levels.pop(level, None)
        if before is None and level and seen.similarity is None:
            continue
        levels[level] = _after(before or Evidence(), seen, policy)
    verified = isinstance(seen, Judgement) or (seen.served and seen.agreed is not None)
    return GuardState(
        levels=MappingProxyType(_bounded(levels)),
        verifications=state.verifications + int(verified),
    )


def counted(state: GuardState, happened: Iterable[Happening], policy: GuardPolicy) -> GuardState:
    """Return the state after all that happened, in its order."""
    for each in happened:
        state = observe(state, each.path, each.seen, policy)
    return state


def _bounded(levels: dict[str, Evidence]) -> dict[str, Evidence]:
    """Let the quietest level go, but not one that an alarm has raised, nor the deployment."""
    if len(levels) > _LEVELS_MAX:
        below = [name for name in levels if name]
        calm = [name for name in below if not levels[name].raised]
        del levels[(calm or below)[0]]
    return levels


def _after(before: Evidence, seen: Observed | Judgement, policy: GuardPolicy) -> Evidence:
    if isinstance(seen, Judgement):
        after = _compared(before, seen.similarity, agreed=seen.agreed)
        return _judged_hit(after, seen.similarity, agreed=seen.agreed, policy=policy)
    after = replace(before, lookups=before.lookups + 1, hits=before.hits + int(seen.served))
    if seen.similarity is None:
        return after
    after = replace(after, seen=_added(after.seen, seen.similarity))
    if seen.agreed is None:
        return after
    after = _compared(after, seen.similarity, agreed=seen.agreed)
    judged = _judged_hit if seen.served else _held_back
    return judged(after, seen.similarity, agreed=seen.agreed, policy=policy)


def _compared(before: Evidence, similarity: float, *, agreed: bool) -> Evidence:
    after = replace(before, judged=_added(before.judged, similarity))
    return after if agreed else replace(after, wrong=_added(after.wrong, similarity))


def _added(counts: Floats, similarity: float) -> Floats:
    after = counts.copy()
    after[bin_of(similarity)] += 1.0
    return after


def bin_of(similarity: float) -> int:
    """Return where a similarity is counted."""
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


def _held_back(
    before: Evidence, similarity: float, *, agreed: bool, policy: GuardPolicy
) -> Evidence:
    """Count what a raised threshold holds back and would have served before.

    Without it a threshold above every similarity would stay there for ever: nothing is served,
    hence nothing verified.
    """
    if not before.raised or similarity < policy.uncertified:
        return before
    return _calmed(replace(before, calm=before.calm + 1 if agreed else 0), policy)


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


# --- as plain values ---------------------------------------------------------------------------

_ARRAYS = ("seen", "judged", "wrong")
_PLAIN = ("lookups", "hits", "hits_judged", "hits_wrong", "alarm", "raised", "calm")


def state_json(state: GuardState) -> dict[str, Any]:
    """Return the state as plain JSON values, for a store."""
    return {
        "verifications": state.verifications,
        "levels": {name: _evidence_json(each) for name, each in state.levels.items()},
    }


def _evidence_json(evidence: Evidence) -> dict[str, Any]:
    return (
        {name: _sparse(getattr(evidence, name)) for name in _ARRAYS}
        | {name: getattr(evidence, name) for name in _PLAIN}
        | {"recent": list(evidence.recent)}
    )


def _sparse(counts: Floats) -> dict[str, float]:
    return {str(at): float(counts[at]) for at in np.flatnonzero(counts)}


def state_from_json(value: Mapping[str, Any]) -> GuardState:
    """Return the state.

    Raises:
        AttributeError, IndexError, KeyError, TypeError, ValueError: It is none, or another
            version's.
    """
    return GuardState(
        verifications=int(value["verifications"]),
        levels=MappingProxyType(
            {str(name): _evidence_from_json(each) for name, each in value["levels"].items()}
        ),
    )


def _evidence_from_json(value: Mapping[str, Any]) -> Evidence:
    arrays = {name: _dense(value[name]) for name in _ARRAYS}
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


def _dense(counts: Mapping[str, float]) -> Floats:
    dense = _empty()
    for at, many in counts.items():
        dense[int(at)] = float(many)
    return dense
