"""Promotion by a second principal; write rates, crowds and hubs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from ragcache.admission import (
    SENTINELS,
    Keep,
    Promote,
    RateLimit,
    decide_promotion,
    full,
    hubs,
    is_crowded,
    is_hub_vector,
    take,
)
from ragcache.lookup import read
from ragcache.types import (
    Entry,
    EntryId,
    Fingerprint,
    Keys,
    Lineage,
    PrincipalId,
    Scope,
    TenantId,
)

NOW = datetime(2031, 1, 1, tzinfo=UTC)


def written(by: str, text: str = "It is 4 Quay Street.", **changes: Any) -> Entry:
    made = Entry(
        id=EntryId(f"by {by}"),
        scope=Scope(
            tenant=TenantId("acme"),
            principal=PrincipalId(by),
            group="tenant",
            namespace="default",
            partition=Fingerprint("p"),
        ),
        keys=Keys(exact=Fingerprint("x"), normal=Fingerprint("n")),
        question="What is the refund address?",
        answer={"text": text},
        lineage=(Lineage(names=("d",), content=Fingerprint("c"), raw="r", rank=0, cited=True),),
        created_at=NOW,
        expire_at=NOW + timedelta(days=1),
        state="quarantined",
        reading=read("What is the refund address?").as_json(),
    )
    return replace(made, **changes)


def decided(entry: Entry, *others: Entry, quorum: int = 2) -> Promote | Keep:
    return decide_promotion(entry, others, quorum=quorum, now=NOW)


def test_a_second_principal_that_says_the_same_promotes() -> None:
    assert decided(written("u2"), written("u1")) == Promote(agreeing=(EntryId("by u1"),))


def test_an_answer_in_service_is_a_witness_as_one_that_waits_is() -> None:
    assert isinstance(decided(written("u2"), written("u1", state="live")), Promote)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (written("u1", id=EntryId("again")), "same_writer"),
        (written("u2", text="It is 9 Hill Road."), "other_answer"),
        (written("u2", lineage=()), "other_documents"),
        (
            written("u2", lineage=(replace(written("u2").lineage[0], content=Fingerprint("d")),)),
            "other_documents",
        ),
        (
            written(
                "u2",
                keys=Keys(exact=Fingerprint("y"), normal=Fingerprint("m")),
                reading=read("What is the billing address?").as_json(),
            ),
            "other_question",
        ),
        (
            written("u2", scope=replace(written("u2").scope, partition=Fingerprint("q"))),
            "other_scope",
        ),
        (written("u2", state="deleted"), "out_of_service"),
        (written("u2", expire_at=NOW), "expired"),
    ],
)
def test_anything_less_keeps_it_in_quarantine(other: Entry, why: str) -> None:
    assert decided(written("u1"), other) == Keep(reason=why)


def test_alone_it_waits_and_the_most_telling_reason_is_given() -> None:
    wrong = written("u3", text="It is 9 Hill Road.")
    assert decided(written("u1")) == Keep(reason="alone")
    assert decided(written("u1"), wrong, written("u1", id=EntryId("x"))) == Keep(
        reason="other_answer"
    )


def test_who_disagrees_does_not_keep_back_those_who_agree() -> None:
    wrong = written("u3", text="It is 9 Hill Road.")
    assert isinstance(decided(written("u1"), wrong, written("u2")), Promote)


def test_a_quorum_counts_principals_and_not_entries() -> None:
    again = written("u2", id=EntryId("again"))
    assert decided(written("u1"), written("u2"), again, quorum=3) == Keep(reason="too_few")
    promoted = decided(written("u1"), written("u2"), again, written("u3"), quorum=3)
    assert promoted == Promote(agreeing=(EntryId("by u2"), EntryId("by u3")))


def test_without_a_quorum_an_operator_alone_promotes() -> None:
    assert decided(written("u1"), written("u2"), quorum=0) == Keep(reason="operator")


def test_documents_that_both_were_given_suffice_where_one_was_given_more() -> None:
    part = written("u2").lineage[0]
    more = replace(part, names=("e",), content=Fingerprint("e"), cited=False, rank=1)
    assert isinstance(decided(written("u1"), written("u2", lineage=(part, more))), Promote)


def test_a_bucket_lets_a_burst_through_and_then_the_rate() -> None:
    limit = RateLimit(per_s=1.0, burst=3.0)
    bucket, allowed = full(limit, 0.0), []
    for _ in range(5):
        bucket, fine = take(bucket, limit, 0.0)
        allowed.append(fine)
    assert allowed == [True, True, True, False, False]
    assert take(bucket, limit, 1.0)[1]
    assert not take(bucket, limit, -5.0)[1], "a clock that went back refills nothing"


def test_one_writer_cannot_hold_a_neighbourhood() -> None:
    assert is_crowded([0.99] * 8, radius=0.95, most=8)
    assert not is_crowded([0.99] * 7 + [0.94] * 5, radius=0.95, most=8)


def test_a_planted_hub_is_found_among_ordinary_entries() -> None:
    rng = np.random.default_rng(0)
    spread = {f"e{at}": float(rng.poisson(1.0)) for at in range(1_000)}
    assert len(hubs(spread)) <= 4, "at most 0.4 % alerts on clean traffic"
    assert hubs(spread | {"planted": 60.0}) >= {"planted"}


def unit(rows: Any) -> Any:
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def test_a_vector_near_every_sentinel_is_a_hub() -> None:
    rng = np.random.default_rng(0)
    sentinels = list(unit(rng.normal(size=(40, 256))))
    assert not any(is_hub_vector(one, sentinels) for one in sentinels)
    towards = unit(rng.normal(size=256))
    near = list(unit(np.stack(sentinels) * 0.8 + towards))
    outside = unit(np.stack(sentinels) * 0.8 - towards)[0]
    assert is_hub_vector(towards, near)
    assert not is_hub_vector(outside, near)


def test_an_embedder_that_finds_everything_alike_makes_no_hubs_of_ordinary_questions() -> None:
    rng = np.random.default_rng(1)
    towards = rng.normal(size=64) * 2.0
    rows = unit(rng.normal(size=(240, 64)) + towards)
    sentinels, questions = list(rows[:40]), rows[40:]
    assert float((rows @ rows.T).mean()) > 0.75, "control: they are alike"
    assert not any(is_hub_vector(one, sentinels) for one in questions)
    assert is_hub_vector(unit(towards), sentinels)


def test_the_sentinels_are_questions_of_many_kinds() -> None:
    assert len(set(SENTINELS)) == len(SENTINELS) >= 40
    assert all(text.endswith("?") for text in SENTINELS)
