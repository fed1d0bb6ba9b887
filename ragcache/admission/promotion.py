"""Out of quarantine: where other principals' own answers say the same, or an operator decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ..lookup import Reading, answers_agree
from ..lookup.gates import gate_reason
from ..lookup.policy import LookupPolicy
from ..types import Entry, EntryId, Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """The entry may be served to everybody in its scope: these say the same."""

    agreeing: tuple[EntryId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The entry waits in quarantine; `reason` is one word."""

    reason: str


#: Why an entry waits, the least telling first.
_REASONS = (
    "alone",
    "same_writer",
    "other_scope",
    "out_of_service",
    "expired",
    "other_question",
    "other_documents",
    "other_answer",
    "too_few",
)


def decide_promotion(
    entry: Entry, others: Sequence[Entry], *, quorum: int, now: datetime
) -> Promote | Keep:
    """Return whether independent answers take a new entry out of quarantine.

    Independent: asked by another principal, made by a call of its own (not served from the
    first), for a question of the same meaning by the strict gates, in the same scope, from
    documents that both were given, and it makes the same claims. The new entry comes into
    service with its own documents and its own lifetime.

    Args:
        entry: As it would be stored in quarantine.
        others: What is stored around it, in service or waiting, all of it current.
        quorum: How many principals must say the same, its own among them; 0: never.
        now: The moment of the decision.
    """
    if not quorum:
        return Keep(reason="operator")
    agreeing: dict[str, EntryId] = {}
    reason = "alone"
    for other in others:
        differs = _difference(entry, other, now)
        if differs:
            reason = max(reason, differs, key=_REASONS.index)
        else:
            agreeing.setdefault(other.scope.principal, other.id)
    if len(agreeing) + 1 >= quorum:
        return Promote(agreeing=tuple(agreeing.values()))
    return Keep(reason="too_few" if agreeing else reason)


def _difference(entry: Entry, other: Entry, now: datetime) -> str:
    """Return why the other answer confirms nothing; "" where it does."""
    if reason := _not_independent(entry, other, now):
        return reason
    if not _same_question(entry, other):
        return "other_question"
    if not _same_documents(entry.lineage, other.lineage):
        return "other_documents"
    return "" if answers_agree(_text(entry), _text(other)) else "other_answer"


def _not_independent(entry: Entry, other: Entry, now: datetime) -> str:
    if entry.id == other.id or entry.scope.principal == other.scope.principal:
        return "same_writer"
    one, two = entry.scope, other.scope
    if (one.tenant, one.group, one.partition) != (two.tenant, two.group, two.partition):
        return "other_scope"
    if other.state == "deleted":
        return "out_of_service"
    return "expired" if other.expire_at <= now else ""


def _same_question(entry: Entry, other: Entry) -> bool:
    if entry.keys.normal == other.keys.normal:
        return True
    one, two = Reading.from_json(entry.reading), Reading.from_json(other.reading)
    if one is None or two is None:
        return False
    return not gate_reason(one, two, LookupPolicy(gates="strict"))


def _same_documents(one: Sequence[Lineage], other: Sequence[Lineage]) -> bool:
    """Whether each side was given a document that the other one rests on, or neither any."""
    if not one or not other:
        return not one and not other
    return _rests_on(one, other) and _rests_on(other, one)


def _rests_on(one: Sequence[Lineage], other: Sequence[Lineage]) -> bool:
    given = {part.content for part in other}
    return any(part.cited and part.content in given for part in one)


def _text(entry: Entry) -> str:
    return str(entry.answer.get("text", ""))
