"""Promotion by a second principal; write rates, crowds and hubs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from ragcache.admission import (
    Keep,
    Neighbour,
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


def test_a_second_principal_that_says_the_same_promotes() -> None:
    assert isinstance(decide_promotion(written("u1"), written("u2"), now=NOW), Promote)


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (written("u1", id=EntryId("again")), "same_writer"),
        (written("u2", text="It is 9 Hill Road."), "other_answer"),
        (written("u2", lineage=()), "other_documents"),
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
    ],
)
def test_anything_less_keeps_it_in_quarantine(second: Entry, why: str) -> None:
    assert decide_promotion(written("u1"), second, now=NOW) == Keep(reason=why)


def test_a_live_or_expired_entry_is_not_promoted() -> None:
    live, late = written("u1", state="live"), written("u1", expire_at=NOW)
    assert decide_promotion(live, written("u2"), now=NOW) == Keep(reason="not_quarantined")
    assert decide_promotion(late, written("u2"), now=NOW) == Keep(reason="expired")


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
    crowd = [Neighbour(principal="u1", similarity=0.95)] * 8
    assert is_crowded(crowd, "u1")
    assert not is_crowded(crowd, "u2")
    assert not is_crowded([Neighbour(principal="u1", similarity=0.5)] * 8, "u1")


def test_a_planted_hub_is_found_among_ordinary_entries() -> None:
    rng = np.random.default_rng(0)
    spread = {f"e{at}": float(rng.poisson(1.0)) for at in range(1_000)}
    assert len(hubs(spread)) <= 4, "at most 0.4 % alerts on clean traffic"
    assert hubs(spread | {"planted": 60.0}) >= {"planted"}


def test_a_vector_near_every_sentinel_is_a_hub() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 16)).astype(np.float32)
    sentinels = list(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    assert not is_hub_vector(sentinels[0], sentinels)
    near = [s + 3 * sentinels[0] for s in sentinels]
    assert is_hub_vector(sentinels[0], [(n / np.linalg.norm(n)).astype(np.float32) for n in near])
