"""The story of a request tells each step, and what to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from ragcache.events import Degraded
from ragcache.telemetry import savings
from ragcache.telemetry.record import assemble
from ragcache.telemetry.recorder import row_of
from ragcache.telemetry.story import story
from ragcache.types import Reject
from tests.unit.telemetry.samples import SECRET, of_follower, of_hit, of_miss

NOW = datetime(2026, 5, 1, tzinfo=UTC)
PRICES = savings.prices_of({"m": {"input": 2.0, "read": 0.5, "output": 8.0}})


def told(events, *, prices=PRICES, **changes):
    kept = assemble(events, at=NOW, prices=prices)
    row = {**row_of(kept), "tenant": kept.tenant, "agreed": None, "judged_by": "", **changes}
    return "\n".join(story(row))


def test_a_miss_says_why_what_it_cost_and_why_reuse_fell_short():
    text = told(of_miss())
    assert "no stored question was near enough" in text
    assert "similarity 0.710" in text
    assert "6,000 tokens in, 250 out, 4,096 of them served" in text
    assert "5,000 were predicted. Evicted: " in text
    assert "to do: more KV memory" in text
    assert "The answer was stored." in text
    assert "Cost $0.007856, saved $0.006144." in text
    assert SECRET not in text


def test_a_hit_says_which_entry_how_alike_and_what_was_spared():
    text = told(of_hit())
    assert "semantic hit on entry" in text
    assert "similarity 0.970" in text
    assert "not certified yet" in text
    assert "Spared: 900 tokens in and 200 out" in text


def test_a_bad_hit_says_that_its_saving_is_taken_back():
    text = told(of_hit(), agreed=False, judged_by="feedback")
    assert "judged wrong: its saving is taken back (by feedback)" in text


def test_a_follower_says_that_another_call_answered_it():
    assert "Another request's call" in told(of_follower())


def test_faults_failures_and_refusals_are_told():
    looked, laid, called, admitted, answered = of_miss()
    fault = Degraded(request_id="r1", scope=looked.scope, part="embed", reason="timeout")
    refused = replace(admitted, verdict=Reject(check="grounding"), stored=False, reason="grounding")
    text = told([fault, looked, laid, called, refused, answered])
    assert "embed: timeout" in text
    assert "not stored. Grounding: the answer holds a number" in text
    assert "failed in 10.0 ms: TargetError" in told(
        [looked, laid, replace(called, error="TargetError")]
    )


def test_money_that_is_unknown_is_said_to_be_unknown():
    text = told(of_miss(), prices=savings.prices_of())
    assert "What it cost is unknown" in text
    assert "$" not in text
