"""The decision: thresholds, expiry, access, evidence, and the reason of a miss."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ragcache.errors import ConfigError
from ragcache.keys import content_hash, raw_hash
from ragcache.lookup import LookupPolicy, decide, read
from ragcache.types import (
    Candidate,
    Document,
    Entry,
    EntryId,
    Fingerprint,
    Hit,
    Keys,
    Lineage,
    Message,
    Miss,
    PrincipalId,
    Request,
    Scope,
    TenantId,
)

NOW = datetime(2031, 1, 1, tzinfo=UTC)
POLICY = LookupPolicy(threshold=0.90, gates="strict")
QUESTION = "What is the leave carry-over limit?"
ASKED = "Please tell me what is the leave carry-over limit"


def entry(question: str = QUESTION, text: str = "5 days", **changes: Any) -> Entry:
    made = Entry(
        id=EntryId("e1"),
        scope=Scope(
            tenant=TenantId("acme"),
            principal=PrincipalId("u1"),
            group="tenant",
            namespace="default",
            partition=Fingerprint("p"),
        ),
        keys=Keys(exact=Fingerprint("x"), normal=Fingerprint("n")),
        question=question,
        answer={"text": text},
        lineage=(),
        created_at=NOW - timedelta(hours=1),
        expire_at=NOW + timedelta(hours=1),
        reading=read(question).as_json(),
    )
    return replace(made, **changes)


def document(name: str, text: str = "") -> Document:
    return Document(text=text or f"text of {name}", source=name)


def came_from(name: str, *, rank: int = 0, cited: bool = True, text: str = "") -> Lineage:
    made = document(name, text)
    return Lineage(
        names=made.names,
        content=content_hash(made.text),
        raw=raw_hash(made.text),
        rank=rank,
        cited=cited,
    )


def ask(*candidates: Candidate, question: str = ASKED, **more: Any) -> Hit | Miss:
    known = {key: more.pop(key) for key in ("policy", "threshold", "certified") if key in more}
    known.setdefault("policy", POLICY)
    request = Request(tenant="acme", principal="u2", question=question, sharing="tenant", **more)
    return decide(candidates, asked=read(question), request=request, now=NOW, **known)


def reason(*candidates: Candidate, **more: Any) -> str:
    found = ask(*candidates, **more)
    return "" if isinstance(found, Hit) else found.reason


def test_equality_at_the_threshold_is_a_hit_and_a_millionth_below_is_none() -> None:
    assert isinstance(ask(Candidate(entry=entry(), similarity=0.90)), Hit)
    assert reason(Candidate(entry=entry(), similarity=0.90 - 1e-6)) == "below_threshold"


def test_a_request_can_only_tighten() -> None:
    floor = LookupPolicy(threshold=0.92, gates="strict")
    below, above = (
        Candidate(entry=entry(), similarity=0.85),
        Candidate(entry=entry(), similarity=0.95),
    )
    assert reason(below, policy=floor, threshold=None) == "below_threshold"
    request = Request(tenant="acme", question=ASKED, threshold=0.50)
    lowered = decide([below], asked=read(ASKED), request=request, now=NOW, policy=floor)
    assert isinstance(lowered, Miss)
    tightened = decide(
        [above], asked=read(ASKED), request=request.replace(threshold=0.99), now=NOW, policy=floor
    )
    assert isinstance(tightened, Miss)
    assert isinstance(ask(above, policy=floor), Hit)


def test_nan_is_never_alike() -> None:
    assert reason(Candidate(entry=entry(), similarity=math.nan)) == "below_threshold"


def test_the_guard_switches_semantic_hits_off_but_not_the_same_words() -> None:
    assert reason(Candidate(entry=entry(), similarity=0.99), threshold=math.inf) == "guard_off"
    same = Candidate(entry=entry(), similarity=1.0)
    found = ask(same, question=QUESTION.upper() + "??", threshold=math.inf)
    assert isinstance(found, Hit)
    assert found.kind == "exact"


def test_an_uncertified_rate_asks_for_more_likeness() -> None:
    policy = LookupPolicy(threshold=0.80, uncertified_threshold=0.95, gates="strict")
    candidate = Candidate(entry=entry(), similarity=0.90)
    assert isinstance(ask(candidate, policy=policy), Hit)
    assert reason(candidate, policy=policy, certified=False) == "below_threshold"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"expire_at": NOW}, "expired"),
        ({"state": "deleted"}, "deleted"),
        ({"state": "quarantined"}, "quarantined"),
        ({"version": "old"}, "version"),
        ({"reading": None}, "unreadable"),
        ({"lineage": (replace(came_from("d"), access=frozenset({"hr"})),)}, "access"),
    ],
)
def test_what_may_not_be_served_says_why(changes: dict[str, Any], why: str) -> None:
    assert reason(Candidate(entry=entry(), similarity=0.99)) == "", "control"
    assert reason(Candidate(entry=entry(**changes), similarity=0.99)) == why


def test_an_exact_entry_is_still_checked_for_expiry_and_access() -> None:
    locked = entry(lineage=(replace(came_from("d"), access=frozenset({"hr"})),))
    assert reason(Candidate(entry=locked, similarity=1.0, exact=True)) == "access"
    assert reason(Candidate(entry=entry(expire_at=NOW), similarity=1.0, exact=True)) == "expired"
    assert (
        reason(Candidate(entry=locked, similarity=1.0, exact=True), access=frozenset({"hr"})) == ""
    )


def test_a_stale_epoch_and_a_request_for_a_younger_answer_are_misses() -> None:
    assert reason(Candidate(entry=entry(), similarity=0.99, current=False)) == "epoch"
    assert reason(Candidate(entry=entry(), similarity=0.99), max_age_s=60.0) == "age"
    assert reason(Candidate(entry=entry(), similarity=0.99), max_age_s=7_200.0) == ""


def test_a_turn_of_a_conversation_is_matched_only_in_its_stand_alone_form() -> None:
    history = (Message(role="user", content="hello"),)
    candidate = Candidate(entry=entry(), similarity=0.99)
    assert reason(candidate, history=history) == "conversation"
    assert reason(candidate, history=history, standalone=ASKED) == ""


def test_documents_retrieved_now_must_carry_the_answer() -> None:
    d1, d2, d7 = document("d1"), document("d2"), document("d7")
    held = entry(lineage=(came_from("d1"), came_from("d2", rank=1)))
    candidate = Candidate(entry=held, similarity=0.99)
    assert reason(candidate, documents=(d1, d2)) == ""
    assert reason(candidate, documents=(d2, d1)) == "", "their order does not matter"
    assert reason(candidate, documents=(d1, d2, d7)) == "", "a new one behind them does not either"
    assert reason(candidate, documents=(d7, d1, d2)) == "new_evidence"
    assert reason(candidate, documents=(d1,)) == "evidence_missing"
    assert reason(candidate, documents=(document("d1", "another text"), d2)) == "document_changed"
    assert reason(candidate) == "", "asked before retrieval"


def test_an_answer_without_documents_gives_way_once_there_are_some() -> None:
    assert (
        reason(Candidate(entry=entry(), similarity=0.99), documents=(document("d1"),))
        == "new_evidence"
    )


def test_neighbours_that_pass_must_say_the_same() -> None:
    near = Candidate(entry=entry(), similarity=0.95)
    same = Candidate(entry=entry(text="5 days."), similarity=0.94)
    other = Candidate(entry=entry(text="10 days"), similarity=0.94)
    far = Candidate(entry=entry(text="10 days"), similarity=0.90)
    narrow = replace(POLICY, conflict_margin=0.03)
    assert reason(near, same) == ""
    assert reason(near, other) == "conflict"
    assert reason(near, far, policy=narrow) == "", "one that is clearly less alike has no say"


def test_the_most_telling_reason_is_reported() -> None:
    below = Candidate(entry=entry(), similarity=0.5)
    expired = Candidate(entry=entry(expire_at=NOW), similarity=0.4)
    assert reason() == "no_candidate"
    assert reason(below, expired) == "expired"


def test_a_moved_vector_column_does_not_make_a_question_alike() -> None:
    import numpy as np

    from ragcache.types import Embedding

    def at(text: str, *vector: float) -> Embedding:
        return Embedding(text=text, vector=np.array(vector, dtype=np.float32))

    held = entry(reading=read(QUESTION, at(QUESTION, 0.0, 1.0)).as_json())
    request = Request(tenant="acme", question=ASKED)
    for asked, kind in ((at(ASKED, 1.0, 0.0), Miss), (at(ASKED, 0.0, 1.0), Hit)):
        found = decide(
            [Candidate(entry=held, similarity=0.99)],
            asked=read(ASKED, asked),
            request=request,
            now=NOW,
            policy=POLICY,
        )
        assert isinstance(found, kind)


@pytest.mark.parametrize(
    "name", ["threshold", "uncertified_threshold", "alignment", "conflict_margin"]
)
@pytest.mark.parametrize("value", [-0.1, 1.7, math.nan, math.inf, "0.9", None, True])
def test_a_threshold_out_of_range_is_a_config_error(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        LookupPolicy(**{name: value})  # type: ignore[arg-type]  # the wrong type is the point
