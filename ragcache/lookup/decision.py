"""The line where it is decided whether a stored answer may be served to this request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..keys import normal_question, question_of
from ..types import Candidate, Entry, Hit, Miss, Request
from .evidence import access_reason, evidence_reason
from .gates import gate_reason
from .policy import LookupPolicy
from .reading import Reading

#: Reasons of a miss, the least informative first: of several candidates the most telling one
#: is reported.
REASONS = (
    "no_candidate",
    "below_threshold",
    "guard_off",
    "conversation",
    "instruction",
    "policy_action",
    "policy_time",
    "language",
    "question_type",
    "words",
    "entity",
    "order",
    "slot",
    "tense",
    "comparison",
    "antonym",
    "negation",
    "number",
    "verifier",
    "age",
    "version",
    "evidence_missing",
    "new_evidence",
    "document_changed",
    "quarantined",
    "access",
    "epoch",
    "expired",
    "deleted",
    "unreadable",
)
_WEIGHT = {reason: at for at, reason in enumerate(REASONS)}
_STALE = frozenset({"expired", "epoch", "document_changed", "age"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    asked: Reading
    request: Request
    now: datetime
    policy: LookupPolicy
    threshold: float


def decide(
    candidates: Sequence[Candidate],
    *,
    asked: Reading,
    request: Request,
    now: datetime,
    policy: LookupPolicy,
    threshold: float | None = None,
    certified: bool = True,
) -> Hit | Miss:
    """Return the best candidate that may be served, or why none may.

    Candidates belong to one tenant already: the store filters before it ranks. Expiry,
    currency and access are looked at again here although the store did so, since time passed
    between the two and a stale answer is worse than a miss.

    Args:
        candidates: In any order; `exact` ones were found by the exact key and skip the gates.
        asked: The question asked now, as `read` understood it.
        request: Its documents, access tags and controls.
        now: The moment of the decision.
        policy: What may be served.
        threshold: The guard's threshold where it has one; infinity switches semantic hits off.
        certified: Whether the error rate of semantic hits is bounded by judged traffic.
    """
    floor = effective_threshold(policy, request, threshold, certified=certified)
    asking = _Asking(asked=asked, request=request, now=now, policy=policy, threshold=floor)
    ranked = sorted(candidates, key=lambda c: (c.exact, c.similarity), reverse=True)
    nearest = max((c.similarity for c in candidates if not c.exact), default=None)
    best = Miss(reason="no_candidate", nearest=nearest)
    for candidate in _limited(ranked, policy.limit):
        reason = _reason(candidate, asking)
        if not reason:
            return _hit(candidate, asking, certified=certified)
        if _WEIGHT.get(reason, len(_WEIGHT)) > _WEIGHT[best.reason]:
            fwd = "stale" if reason in _STALE else "miss"
            best = Miss(reason=reason, fwd=fwd, nearest=nearest)  # type: ignore[arg-type]  # one of the four words
    return best


def effective_threshold(
    policy: LookupPolicy, request: Request, guard: float | None, *, certified: bool
) -> float:
    """Return the similarity asked for: the strictest of policy, guard and request."""
    floor = policy.threshold if certified else max(policy.threshold, policy.uncertified_threshold)
    asked = request.threshold
    if asked is None or not isinstance(asked, (int, float)) or not math.isfinite(asked):
        asked = 0.0
    return max(floor, floor if guard is None else guard, asked)


def _limited(ranked: Sequence[Candidate], limit: int) -> Sequence[Candidate]:
    exact = [c for c in ranked if c.exact]
    return [*exact, *[c for c in ranked if not c.exact][:limit]]


def _hit(candidate: Candidate, asking: _Asking, *, certified: bool) -> Hit:
    if candidate.exact or _same_words(candidate.entry, asking.request):
        return Hit(entry=candidate.entry, kind="exact", similarity=1.0)
    return Hit(
        entry=candidate.entry,
        kind="semantic",
        similarity=candidate.similarity,
        certified=certified,
    )


def _reason(candidate: Candidate, asking: _Asking) -> str:
    servable = servable_reason(candidate, asking.request, asking.now)
    if servable or candidate.exact:
        return servable
    return _similar(candidate, asking) or _same_meaning(candidate.entry, asking)


def servable_reason(candidate: Candidate, request: Request, now: datetime) -> str:
    """Return why the entry may not be served at all, whatever was asked, or ""."""
    entry = candidate.entry
    if entry.state == "deleted":
        return "deleted"
    if entry.expire_at <= now:
        return "expired"
    if not candidate.current:
        return "epoch"
    asker = request.principal or request.tenant
    if entry.state == "quarantined" and entry.scope.principal != asker:
        return "quarantined"
    if entry.version != request.version:
        return "version"
    if _too_old(entry, request, now):
        return "age"
    return access_reason(entry.lineage, request.access)


def _too_old(entry: Entry, request: Request, now: datetime) -> bool:
    if request.max_age_s is None:
        return False
    return now - entry.created_at > timedelta(seconds=request.max_age_s)


def _similar(candidate: Candidate, asking: _Asking) -> str:
    if candidate.similarity >= 1.0 and _same_words(candidate.entry, asking.request):
        return ""  # found by the normalised key: no matter of likeness
    if math.isinf(asking.threshold):
        return "guard_off"
    if not candidate.similarity >= asking.threshold:  # NaN is never alike
        return "below_threshold"
    return ""


def _same_words(entry: Entry, request: Request) -> bool:
    return normal_question(entry.question) == normal_question(question_of(request))


def _same_meaning(entry: Entry, asking: _Asking) -> str:
    request, policy = asking.request, asking.policy
    if request.history and not request.standalone:
        return "conversation"
    stored = Reading.from_json(entry.reading)
    if stored is None:
        return "unreadable"
    reason = gate_reason(stored, asking.asked, policy)
    if reason or not policy.evidence:
        return reason
    return _evidence(entry, asking)


def _evidence(entry: Entry, asking: _Asking) -> str:
    documents = asking.request.documents
    if documents and not entry.lineage:
        return "new_evidence"
    return evidence_reason(entry.lineage, documents, depth=asking.policy.evidence_depth)
