"""Out of quarantine: when a second principal's own answer says the same, or an operator does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..lookup import Reading, answers_agree
from ..lookup.gates import gate_reason
from ..lookup.policy import LookupPolicy
from ..types import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """The entry may be served to everybody in its scope."""

    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The entry stays where it is; `reason` is one word."""

    reason: str


def decide_promotion(entry: Entry, second: Entry, *, now: datetime) -> Promote | Keep:
    """Return whether an independent second answer takes an entry out of quarantine.

    Independent: asked by another principal, made by a call of its own (not served from the
    first), for a question of the same meaning by the strict gates, in the same scope, from the
    same documents, and it makes the same claims.

    Args:
        entry: In quarantine.
        second: As it would be stored for the other principal.
        now: The moment of the decision.
    """
    if reason := _not_eligible(entry, second, now):
        return Keep(reason=reason)
    if not _same_question(entry, second):
        return Keep(reason="other_question")
    if _documents(entry) != _documents(second):
        return Keep(reason="other_documents")
    if not answers_agree(_text(entry), _text(second)):
        return Keep(reason="other_answer")
    return Promote(by=str(second.scope.principal))


def _not_eligible(entry: Entry, second: Entry, now: datetime) -> str:
    if entry.state != "quarantined":
        return "not_quarantined"
    if entry.expire_at <= now:
        return "expired"
    if entry.id == second.id or entry.scope.principal == second.scope.principal:
        return "same_writer"
    one, other = entry.scope, second.scope
    if (one.tenant, one.group, one.partition) != (other.tenant, other.group, other.partition):
        return "other_scope"
    return ""


def _same_question(entry: Entry, second: Entry) -> bool:
    if entry.keys.normal == second.keys.normal:
        return True
    one, other = Reading.from_json(entry.reading), Reading.from_json(second.reading)
    if one is None or other is None:
        return False
    return not gate_reason(one, other, LookupPolicy(gates="strict"))


def _documents(entry: Entry) -> frozenset[str]:
    return frozenset(part.content for part in entry.lineage if part.cited)


def _text(entry: Entry) -> str:
    return str(entry.answer.get("text", ""))
