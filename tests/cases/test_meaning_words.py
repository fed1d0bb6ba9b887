"""Field cases of matching: S01, S02, S03, S04, S09, on the pure decision."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ragcache.errors import ConfigError
from ragcache.lookup import LookupPolicy, decide, needs_context, read
from ragcache.types import (
    Candidate,
    Entry,
    EntryId,
    Fingerprint,
    Hit,
    Keys,
    Message,
    Miss,
    PrincipalId,
    Request,
    Scope,
    TenantId,
)

NOW = datetime(2031, 1, 1, tzinfo=UTC)
POLICY = LookupPolicy(threshold=0.90)


def stored(question: str) -> Entry:
    return Entry(
        id=EntryId("e"),
        scope=Scope(
            tenant=TenantId("acme"),
            principal=PrincipalId("acme"),
            group="principal:acme",
            namespace="default",
            partition=Fingerprint("p"),
        ),
        keys=Keys(exact=Fingerprint("x"), normal=Fingerprint("n")),
        question=question,
        answer={"text": "an answer"},
        lineage=(),
        created_at=NOW,
        expire_at=NOW + timedelta(days=1),
        reading=read(question).as_json(),
    )


def outcome(
    first: str, then: str, similarity: float, policy: LookupPolicy = POLICY, **more: object
) -> Hit | Miss:
    request = Request(tenant="acme", question=then, **more)  # type: ignore[arg-type]  # test values
    return decide(
        [Candidate(entry=stored(first), similarity=similarity)],
        asked=read(then),
        request=request,
        now=NOW,
        policy=policy,
    )


def why(found: Hit | Miss) -> str:
    return "" if isinstance(found, Hit) else found.reason


@pytest.mark.parametrize(
    ("first", "then", "similarity", "guard"),
    [
        ("How do I enable two-step login?", "How do I disable two-step login?", 0.97, "antonym"),
        ("Can staff carry over leave?", "Can staff not carry over leave?", 0.98, "negation"),
        (
            "Move 50 from savings to checking: fee?",
            "Move 50 from checking to savings: fee?",
            0.99,
            "slot",
        ),
    ],
)
def test_S01_the_opposite_question_is_a_miss_that_names_its_guard(
    first: str, then: str, similarity: float, guard: str
) -> None:
    assert why(outcome(first, then, similarity)) == guard


_SWAPPED = [
    ("refund window for EU orders?", "refund window for US orders?"),
    ("limits of Kestrel v2.4?", "limits of Kestrel v2.5?"),
    ("fee after 30 days?", "fee after 90 days?"),
    ("price of Kestrel?", "price of Merlin?"),
    ("revenue in Q3 2030?", "revenue in Q3 2031?"),
    ("dose in mg?", "dose in g?"),
]


@pytest.mark.parametrize(("first", "then"), _SWAPPED)
def test_S02_another_entity_number_or_unit_is_a_miss(first: str, then: str) -> None:
    assert why(outcome(first, then, 0.98)) in ("entity", "number")


@pytest.mark.parametrize("question", [pair[0] for pair in _SWAPPED])
def test_S02_control_case_blanks_and_punctuation_still_hit(question: str) -> None:
    changed = "  " + question.upper().replace(" ", "  ") + "?"
    assert isinstance(outcome(question, changed, 1.0), Hit)


def test_S03_similarity_is_a_similarity_and_a_request_cannot_lower_the_floor() -> None:
    first, then = "What is the carry limit?", "Please tell me what is the carry limit"
    assert why(outcome("What is 1+1?", "Tell me a joke", 0.35)) == "below_threshold"
    for value in (-0.1, 1.7, math.nan, "0.9"):
        with pytest.raises(ConfigError):
            LookupPolicy(threshold=value)  # type: ignore[arg-type]  # the wrong type is the point
    floor = replace(POLICY, threshold=0.92)
    assert isinstance(outcome(first, then, 0.85, floor, threshold=0.50), Miss)
    assert isinstance(outcome(first, then, 0.95, floor, threshold=0.99), Miss)
    assert isinstance(outcome(first, then, 0.95, floor), Hit)
    assert isinstance(outcome(first, then, 0.92, floor), Hit)
    assert isinstance(outcome(first, then, 0.92 - 1e-6, floor), Miss)


def test_S04_a_turn_that_leans_on_the_chat_is_not_matched_by_meaning() -> None:
    question = "How old is the company?"
    chat = (
        Message(role="user", content="Who makes Merlin?"),
        Message(role="assistant", content="Brand."),
    )
    assert isinstance(outcome(question, question + " please", 0.99), Hit), "control: one turn"
    assert why(outcome(question, question, 1.0, history=chat)) == "conversation"
    assert needs_context(question, chat)
    assert needs_context("cancel it")


@pytest.mark.parametrize(
    ("then", "similarity"),
    [
        ("What is the leave carry-over limit  ??", 1.0),
        ("what is the leave carry-over limit?", 1.0),
        ("Please tell me what is the leave carry-over limit", 0.97),
        ("what's the leave carry over limit", 0.98),
    ],
)
def test_S09_rewordings_still_hit_without_token_vectors(then: str, similarity: float) -> None:
    assert isinstance(outcome("What is the leave carry-over limit?", then, similarity), Hit)
