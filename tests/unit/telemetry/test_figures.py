"""The four figures, from the sums of hours."""

from __future__ import annotations

from dataclasses import asdict

from ragcache.telemetry.figures import (
    Figures,
    causes_of_lost_prefix,
    causes_of_misses,
    grouped,
    plain,
    total,
)


def row(**sums):
    return asdict(Figures(**sums))


def test_rates_of_nothing_are_unknown_and_the_bound_is_one():
    nothing = total([])
    assert nothing.prefix_hit_rate is None
    assert nothing.semantic_hit_rate is None
    assert nothing.bad_hit_rate is None
    assert nothing.ttft_saved_s is None
    assert nothing.bad_hit_bound == 1.0
    assert plain(nothing)["saved"] is None


def test_sums_add_up_over_hours_and_groups():
    rows = [row(requests=2, hits_exact=1, input=100, cached=50) | {"model": "a"}]
    rows += [row(requests=2, hits_semantic=1, input=300, cached=50) | {"model": "b"}]
    whole = total(rows)
    assert (whole.requests, whole.hits) == (4, 2)
    assert whole.prefix_hit_rate == 0.25
    assert {k: f.prefix_hit_rate for k, f in grouped(rows, lambda r: r["model"]).items()} == {
        "a": 0.5,
        "b": 1 / 6,
    }


def test_negative_savings_stay_negative():
    figures = Figures(spent=1.5, uncached=1.0, spared=0.2, lost=0.2, verification=0.1)
    assert round(figures.saved, 6) == -0.6
    assert round(figures.saved_share, 6) == -0.5


def test_598_right_judgements_bound_the_rate_by_half_a_percent():
    assert Figures(judged=597).bad_hit_bound > 0.005 > Figures(judged=620).bad_hit_bound
    assert Figures(judged=620, wrong=1).bad_hit_bound > 0.005


def test_causes_are_ranked():
    def request(status="miss", reason="", predicted=None, cached=None, cause=""):
        return {
            "status": status,
            "reason": reason,
            "predicted": predicted,
            "cached": cached,
            "cause": cause,
            "seconds": {"target": 1.0},
        }

    rows = [request(reason="gate_numbers"), request(reason="no_candidate")]
    rows += [request(reason="no_candidate"), request(status="hit_exact", reason="x")]
    assert causes_of_misses(rows) == [("no_candidate", 2), ("gate_numbers", 1)]
    lost = [request(predicted=100, cached=20, cause="evicted"), request(predicted=50, cached=60)]
    assert causes_of_lost_prefix(lost) == [("evicted", 80)]
