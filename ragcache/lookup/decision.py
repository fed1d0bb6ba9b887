"""The line where it is decided whether a stored answer may be served to this request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from ..keys import normal_question, question_of
from ..types import Candidate, Entry, EntryId, Hit, Miss, Request
from .agreement import answers_agree
from .evidence import access_reason, evidence_reason
from .gates import gate_reason
from .policy import LookupPolicy
from .reading import Reading, likeness
from .support import is_supported

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
    "conflict",
    "age",
    "version",
    "evidence_missing",
    "new_evidence",
    "unsupported",
    "document_changed",
    "quarantined",
    "access",
    "epoch",
    "expired",
    "deleted",
    "unreadable",
)
_WEIGHT = {reason: at for at, reason in enumerate(REASONS)}
#: Nobody was asked for a second opinion.
NO_OPINIONS: Mapping[EntryId, bool] = MappingProxyType({})
_STALE = frozenset({"expired", "epoch", "document_changed", "age"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    asked: Reading
    request: Request
    now: datetime
    policy: LookupPolicy
    threshold: float
    opinions: Mapping[EntryId, bool] = field(default_factory=lambda: NO_OPINIONS)
    names_told: bool = False


def decide(
    candidates: Sequence[Candidate],
    *,
    asked: Reading,
    request: Request,
    now: datetime,
    policy: LookupPolicy,
    threshold: float | None = None,
    certified: bool = True,
    opinions: Mapping[EntryId, bool] = NO_OPINIONS,
    names_told: bool = False,
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
        opinions: What a second opinion says of the candidates of `grey`: whether they fit.
        names_told: It has learned names, and overrules their gate too.
    """
    floor = effective_threshold(policy, request, threshold, certified=certified)
    asking = _Asking(
        asked=asked,
        request=request,
        now=now,
        policy=policy,
        threshold=floor,
        opinions=opinions,
        names_told=names_told,
    )
    best = Miss(reason="no_candidate", nearest=_nearest(candidates))
    passing: list[Candidate] = []
    for candidate in _ranked(candidates, policy.limit):
        if passing and candidate.similarity < passing[0].similarity - policy.conflict_margin:
            break
        reason = _reason(candidate, asking)
        if not reason and _is_by_key(candidate, request):
            return _hit(candidate, request, certified=certified)
        if not reason:
            passing.append(candidate)
        elif not passing:
            best = _more_telling(best, reason)
    return _agreed(passing, request, certified=certified) or best


def exact_hit(candidates: Sequence[Candidate], *, request: Request, now: datetime) -> Hit | None:
    """Return the hit that `decide` would give before it reads the question: one by exact key."""
    for candidate in candidates:
        if candidate.exact and not servable_reason(candidate, request, now):
            return _hit(candidate, request, certified=True)
    return None


def grey(
    candidates: Sequence[Candidate],
    *,
    asked: Reading,
    request: Request,
    now: datetime,
    policy: LookupPolicy,
    threshold: float | None = None,
    names_told: bool = False,
) -> tuple[Candidate, ...]:
    """Return the candidates about which a second opinion decides, the nearest first.

    They pass everything that `decide` looks at, but for words that nothing on the other side
    explains; for names too where `names_told`. The other gates are not to be overruled.
    """
    floor = effective_threshold(policy, request, threshold, certified=True)
    asking = _Asking(
        asked=asked,
        request=request,
        now=now,
        policy=policy,
        threshold=floor,
        names_told=names_told,
    )
    return tuple(c for c in _ranked(candidates, policy.limit) if _is_grey(c, asking))


def _is_grey(candidate: Candidate, asking: _Asking) -> bool:
    if _reason(candidate, asking) not in ("words", "entity"):
        return False
    believed = replace(asking, opinions={candidate.entry.id: True})
    return not _reason(candidate, believed)


def _agreed(
    passing: Sequence[Candidate], request: Request, *, certified: bool
) -> Hit | Miss | None:
    """Serve the nearest one, unless another that is as good says something else."""
    if not passing:
        return None
    texts = [str(candidate.entry.answer.get("text", "")) for candidate in passing]
    if any(not answers_agree(texts[0], text) for text in texts[1:]):
        return Miss(reason="conflict", nearest=passing[0].similarity)
    return _hit(passing[0], request, certified=certified)


def _nearest(candidates: Sequence[Candidate]) -> float | None:
    return max((c.similarity for c in candidates if not c.exact), default=None)


def _ranked(candidates: Sequence[Candidate], limit: int) -> Sequence[Candidate]:
    """Those found by the exact key, then the nearest ones."""
    exact = [c for c in candidates if c.exact]
    others = sorted(
        (c for c in candidates if not c.exact), key=lambda c: c.similarity, reverse=True
    )
    return [*exact, *others[:limit]]


def _more_telling(best: Miss, reason: str) -> Miss:
    if _WEIGHT.get(reason, len(_WEIGHT)) <= _WEIGHT[best.reason]:
        return best
    if reason in _STALE:
        return Miss(reason=reason, fwd="stale", nearest=best.nearest)
    return Miss(reason=reason, nearest=best.nearest)


def effective_threshold(
    policy: LookupPolicy, request: Request, guard: float | None, *, certified: bool
) -> float:
    """Return the similarity asked for: the strictest of policy, guard and request."""
    floor = policy.threshold if certified else max(policy.threshold, policy.uncertified_threshold)
    asked = request.threshold
    if asked is None or not isinstance(asked, (int, float)) or not math.isfinite(asked):
        asked = 0.0
    return max(floor, floor if guard is None else guard, asked)


def _hit(candidate: Candidate, request: Request, *, certified: bool) -> Hit:
    if _is_by_key(candidate, request):
        return Hit(entry=candidate.entry, kind="exact", similarity=1.0)
    return Hit(
        entry=candidate.entry,
        kind="semantic",
        similarity=candidate.similarity,
        certified=certified,
    )


def _is_by_key(candidate: Candidate, request: Request) -> bool:
    """Whether one of the two keys found it: the same words, no matter of likeness."""
    return candidate.exact or (
        candidate.similarity >= 1.0 and _same_words(candidate.entry, request)
    )


def _same_words(entry: Entry, request: Request) -> bool:
    return normal_question(entry.question) == normal_question(question_of(request))


def _reason(candidate: Candidate, asking: _Asking) -> str:
    servable = servable_reason(candidate, asking.request, asking.now)
    if servable or candidate.exact:
        return servable
    return _similar(candidate, asking) or _same_meaning(candidate, asking)


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
    if _is_by_key(candidate, asking.request):
        return ""
    if math.isinf(asking.threshold):
        return "guard_off"
    if not candidate.similarity >= asking.threshold:  # NaN is never alike
        return "below_threshold"
    return ""


def _same_meaning(candidate: Candidate, asking: _Asking) -> str:
    request, policy, entry = asking.request, asking.policy, candidate.entry
    if request.history and not request.standalone:
        return "conversation"
    stored = Reading.from_json(entry.reading)
    if stored is None:
        return "unreadable"
    if not _is_by_key(candidate, request) and _is_forged(stored, asking):
        return "below_threshold"
    told = entry.id in asking.opinions
    reason = gate_reason(stored, asking.asked, policy, names_told=told and asking.names_told)
    if told and reason in ("", "words"):
        reason = "" if asking.opinions[entry.id] else "verifier"
    if reason or not policy.evidence:
        return reason
    return _evidence(entry, asking)


#: What the int8 form of a sentence vector may cost.
_ROUNDING = 0.02


def _is_forged(stored: Reading, asking: _Asking) -> bool:
    """Whether the signed sentence vectors are less alike than the index claims."""
    alike = likeness(stored, asking.asked)
    return alike is not None and alike + _ROUNDING < asking.threshold


def _evidence(entry: Entry, asking: _Asking) -> str:
    documents = asking.request.documents
    if documents and not entry.lineage:
        return "new_evidence"
    reason = evidence_reason(entry.lineage, documents, depth=asking.policy.evidence_depth)
    if reason or not documents:
        return reason
    texts = [document.text for document in documents]
    return "" if is_supported(entry.reading, texts) else "unsupported"
