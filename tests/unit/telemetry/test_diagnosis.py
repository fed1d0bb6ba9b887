"""What doctor reads in the last requests."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ragcache.telemetry import diagnosis, savings
from ragcache.telemetry.record import assemble
from ragcache.telemetry.recorder import row_of
from tests.unit.telemetry.samples import of_hit, of_miss

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def rows(count: int = 6, **fields):
    made = [
        assemble(of_miss("acme", f"r{n}"), at=NOW, prices=savings.prices_of()) for n in range(6)
    ]
    return [{**row_of(one), "tenant": "acme", **fields} for one in made[:count]]


def hits(count: int = 6):
    made = assemble(of_hit("acme"), at=NOW, prices=savings.prices_of())
    return [{**row_of(made), "tenant": "acme"}] * count


def found(given, **settings):
    known = {"threshold": 0.9, "ttl_s": 86_400.0} | settings
    return {f.name: f for f in diagnosis.diagnosed(given, **known)}


def test_the_order_is_prefixes_counters_similarity_lifetime():
    names = [f.name for f in diagnosis.diagnosed(rows(), threshold=0.9, ttl_s=60)]
    assert names == ["prefixes", "counters", "similarity", "lifetime"]


def test_too_few_requests_say_nothing_and_that_is_said():
    seen = found(rows(4))
    assert "too few requests" in seen["prefixes"].detail
    assert "too few requests" in seen["counters"].detail
    assert not any(f.advice for f in seen.values())


def test_prompts_that_begin_alike_are_well():
    assert "100% of 6" in found(rows())["prefixes"].detail
    assert not found(rows())["prefixes"].advice


def test_a_head_that_changes_with_each_request_is_named():
    changing = [row | {"head": f"h{n}"} for n, row in enumerate(rows())]
    seen = found(changing)["prefixes"]
    assert "0% of 6" in seen.detail
    assert "first difference" in seen.detail
    assert "ragcache lint" in seen.advice


def test_tenants_with_system_texts_of_their_own_are_no_fault():
    """The control of the one above: the same heads, each its tenant's own."""
    own = [row | {"head": f"h{n}", "tenant": f"t{n}"} for n, row in enumerate(rows())]
    assert not found(own)["prefixes"].advice


def test_what_the_target_served_and_the_cause_of_what_it_did_not():
    seen = found(rows())["counters"]
    assert "68% of the tokens of 6 calls" in seen.detail
    assert f"{6 * 904:,} more were predicted" in seen.detail
    assert seen.advice.startswith("evicted: the engine had given the blocks to others")


def test_a_target_that_reports_nothing_is_told_how_to():
    seen = found(rows(cached=None))["counters"]
    assert "none of 6 calls" in seen.detail
    assert "--enable-prompt-tokens-details" in seen.advice


def test_failed_calls_and_hits_are_no_evidence_of_prefixes():
    assert "too few" in found(rows(error="TargetError"))["counters"].detail
    assert "too few" in found(hits())["counters"].detail


def test_a_threshold_that_is_just_too_high_is_named():
    near = rows(reason="below_threshold", nearest=0.88)
    seen = found(near)["similarity"]
    assert "6 were under the threshold, half of them over 0.880" in seen.detail
    assert "ragcache calibrate" in seen.advice
    assert not found(rows())["similarity"].advice


@pytest.mark.parametrize("reason", ["guard_off", "bad_vector", "no_embedder"])
def test_what_keeps_all_semantic_hits_away_is_named(reason):
    assert found(rows(reason=reason))["similarity"].advice.startswith(f"{reason}: ")


def test_hits_are_counted():
    assert "100% of 6 requests were semantic hits" in found(hits())["similarity"].detail


@pytest.mark.parametrize(
    ("ttl_s", "told"),
    [
        (86_400.0, "24 hours"),
        (7 * 86_400.0, "7 days"),
        (3_600.0, "60 minutes"),
        (90.0, "90 seconds"),
    ],
)
def test_a_lifetime_is_told_in_units_people_use(ttl_s, told):
    assert found(rows(), ttl_s=ttl_s)["lifetime"].detail == f"an answer lives {told}"


def test_answers_that_go_too_early_are_named():
    seen = found(rows(reason="expired"))["lifetime"]
    assert "6 of 6 requests came after it" in seen.detail
    assert "admission.ttl_s" in seen.advice
