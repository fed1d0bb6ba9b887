"""One record for each request, made from its events."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ragcache.events import Called, Degraded, LookedUp
from ragcache.telemetry import savings
from ragcache.telemetry.record import assemble, is_last, status_of
from ragcache.telemetry.recorder import row_of
from ragcache.types import CacheStatus, Miss
from tests.unit.telemetry.samples import SECRET, of_follower, of_hit, of_miss

NOW = datetime(2026, 5, 1, tzinfo=UTC)
PRICES = savings.prices_of({"m": {"input": 2.0, "read": 0.5, "output": 8.0}})


def made(events, **options):
    return assemble(events, at=NOW, prices=PRICES, **options)


def test_a_miss_keeps_what_it_cost_and_why_reuse_fell_short():
    kept = made(of_miss())
    assert (kept.status, kept.reason, kept.nearest) == ("miss", "no_candidate", 0.71)
    assert (kept.predicted, kept.cached, kept.cause) == (5000, 4096, "evicted")
    assert (round(kept.cost, 6), round(kept.uncached, 6)) == (0.007856, 0.014)
    assert kept.blocks == (("abababababab", 21, "tariff.pdf"),)
    assert kept.called
    assert kept.seconds == dict.fromkeys(
        ["lookup", "layout", "target", "admission", "answer"], 0.01
    )


def test_a_hit_keeps_what_it_spared_and_sent_nothing():
    kept = made(of_hit())
    assert (kept.status, kept.similarity, kept.certified) == ("hit_semantic", 0.97, False)
    assert (kept.input, kept.cached, kept.output) == (0, 0, 0)
    assert (kept.saved_input, kept.saved_output) == (900, 200)
    assert (kept.cost, round(kept.uncached, 6)) == (0.0, 0.0034)
    assert not kept.called


def test_a_follower_spared_the_call_of_its_leader():
    kept = made(of_follower())
    assert kept.collapsed
    assert (kept.saved_input, kept.input) == (6000, 0)
    assert not kept.called


def test_a_leader_whose_caller_left_has_still_paid():
    kept = made(of_miss()[:-1])
    assert (kept.status, round(kept.cost, 6)) == ("miss", 0.007856)


def test_contents_are_kept_only_where_they_were_asked_for():
    for events in (of_miss(), of_hit(), of_follower()):
        row = json.dumps(row_of(made(events)), default=str)
        assert SECRET not in row
        assert "Said." not in row
    assert made(of_hit(), contents=True).question == SECRET
    assert made(of_hit(), contents=True).answer == "It is this."


def test_the_digest_of_the_head_changes_with_a_byte_of_the_system_text_and_not_with_the_question():
    events = of_miss()
    laid = events[1].layout
    system, user = laid.messages
    other = replace(user, content="another question")
    moved = replace(system, content=system.content + " ")

    def head(*messages):
        changed = replace(events[1], layout=replace(laid, messages=messages))
        return made([events[0], changed, *events[2:]]).head

    assert head(system, user) == head(system, other) != head(moved, user)


def test_what_was_passed_by_is_named():
    looked, *rest = of_miss()
    fault = Degraded(
        request_id="r1", scope=looked.scope, part="store", reason="timeout", detail="50 ms"
    )
    assert made([fault, looked, *rest]).degraded == ("store: timeout 50 ms",)


@pytest.mark.parametrize(
    ("fwd", "status"),
    [("miss", "miss"), ("stale", "stale"), ("bypass", "bypass"), ("request", "bypass")],
)
def test_every_way_forward_has_one_status(fwd, status):
    looked = LookedUp(request_id="r", scope=of_miss()[0].scope, outcome=Miss(reason="x", fwd=fwd))
    answer = replace(of_miss()[-1].answer, status=CacheStatus(fwd=fwd))
    assert status_of(looked, None) == status_of(None, answer) == status


def test_a_request_is_whole_with_its_answer_or_with_the_error_of_its_call():
    miss = of_miss()
    assert [is_last(e) for e in miss] == [False, False, False, False, True]
    failed = replace(miss[2], error="TargetError")
    assert isinstance(failed, Called)
    assert is_last(failed)


def test_the_lookup_is_all_where_the_caller_asks_the_model_himself():
    assert is_last(replace(of_miss()[0], provider=""))


def test_a_row_holds_nothing_that_postgres_refuses():
    looked, _answered = of_hit()
    hit = replace(looked.outcome, similarity=float("nan"), detail="a\x00b\ud800")
    row = row_of(made([replace(looked, outcome=hit)]))
    text = json.dumps(row, default=str, allow_nan=False)
    assert "\\u0000" not in text
    assert "\\ud800" not in text
