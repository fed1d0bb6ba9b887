"""The guard: bounds that hold all the time, a threshold that moves, evidence that is pooled."""

from __future__ import annotations

import math
import random

import pytest

from ragcache.lookup import (
    GuardPolicy,
    GuardState,
    Happening,
    Judgement,
    Observed,
    anytime_upper,
    counted,
    fixed_upper,
    needed_without_error,
    observe,
    standing,
    state_from_json,
    state_json,
)
from ragcache.lookup.bounds import is_bounded
from ragcache.lookup.guard import SHOWN_ALPHA

POLICY = GuardPolicy()


def hits(state: GuardState, path: tuple[str, ...], right: int, wrong: int = 0) -> GuardState:
    for at in range(right + wrong):
        seen = Observed(similarity=0.96, served=True, agreed=at >= wrong)
        state = observe(state, path, seen, POLICY)
    return state


def test_598_judged_without_an_error_certify_half_a_percent_and_597_do_not() -> None:
    assert needed_without_error(0.005) == 598
    assert fixed_upper(0, 597) > 0.005 >= fixed_upper(0, 598)
    assert [fixed_upper(k, n) <= 0.005 for k, n in ((1, 946), (1, 947), (2, 1258), (3, 1549))] == [
        False, True, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("judged", [1, 2, 7, 60, 900])
def test_a_bound_is_where_so_few_errors_have_the_probability_alpha(judged: int) -> None:
    for wrong in sorted({0, 1, judged // 3, judged - 1} - {judged}):
        bound = fixed_upper(wrong, judged)
        terms = [
            math.comb(judged, k) * bound**k * (1 - bound) ** (judged - k) for k in range(wrong + 1)
        ]
        assert math.fsum(terms) == pytest.approx(0.05, rel=1e-6)
        assert is_bounded(wrong, judged, min(bound * 1.001, (1 + bound) / 2))
        assert not is_bounded(wrong, judged, bound * 0.999)


def test_a_bound_of_very_many_judgements_is_near_the_normal_one() -> None:
    spread = 1.6449 * math.sqrt(0.3 * 0.7 / 1_000_000)
    assert fixed_upper(300_000, 1_000_000) == pytest.approx(0.3 + spread, abs=2e-6)


def test_a_bound_without_evidence_bounds_nothing() -> None:
    assert not is_bounded(0, 0, 0.5)
    assert anytime_upper(0, 0) == 1.0
    assert standing(GuardState(), ("faq",), POLICY).certified is False


def test_the_guard_certifies_after_enough_clean_hits() -> None:
    state = hits(GuardState(), ("faq",), 590)
    assert not standing(state, ("faq",), POLICY).certified
    assert standing(hits(state, ("faq",), 20), ("faq",), POLICY).certified


def test_fifty_small_tenants_are_certified_together() -> None:
    state = GuardState()
    for tenant in range(50):
        state = hits(state, (f"tenant{tenant}",), 13)
    alone = hits(GuardState(), ("tenant0",), 13)
    assert standing(state, ("tenant0",), POLICY).certified
    assert not standing(alone, ("tenant0",), POLICY).certified, "control: 13 hits alone are too few"


def _moved_after(seed: int, rate: float) -> int | None:
    draw = random.Random(seed)
    state = hits(GuardState(), (), 300)
    before = standing(state, (), POLICY).threshold
    for at in range(200):
        agreed = (draw.random() >= rate) if draw.random() < 0.2 else None
        state = observe(state, (), Observed(similarity=0.96, served=True, agreed=agreed), POLICY)
        if standing(state, (), POLICY).threshold > before:
            return at
    return None


def _jumps(runs: int) -> float:
    return sum(_moved_after(seed, 0.20) is not None for seed in range(runs)) / runs


def test_the_threshold_moves_within_200_hits_after_the_errors_jump() -> None:
    assert _jumps(60) >= 0.95
    assert sum(_moved_after(seed, 0.0) is not None for seed in range(20)) == 0, "control: no errors"


@pytest.mark.prove
def test_the_threshold_moves_in_95_of_100_of_1000_runs() -> None:
    moved = _jumps(1_000)
    print(f"the threshold moved within 200 hits in {moved:.1%} of 1,000 runs")
    assert moved >= 0.95


def _covered(rate: float, runs: int, judged: int) -> float:
    """Share of runs in which the shown bound never falls below the true rate."""
    draw = random.Random(7)
    bounds: dict[tuple[int, int], float] = {}
    kept = 0
    for _ in range(runs):
        wrong, fine = 0, True
        for n in range(1, judged + 1):
            wrong += draw.random() < rate
            if (wrong, n) not in bounds:
                bounds[wrong, n] = anytime_upper(wrong, n, alpha=SHOWN_ALPHA)
            fine = fine and bounds[wrong, n] >= rate
        kept += fine
    return kept / runs


def test_the_bound_covers_though_it_is_looked_at_after_every_judgement() -> None:
    assert _covered(0.02, 200, 300) >= 0.95


@pytest.mark.prove
@pytest.mark.parametrize("rate", [0.005, 0.02, 0.1])
def test_the_bound_covers_in_95_of_100_of_1000_runs(rate: float) -> None:
    covered = _covered(rate, 1_000, 800)
    print(f"the bound covered a rate of {rate:.1%} in {covered:.1%} of 1,000 runs")
    assert covered >= 0.95


def test_a_raised_threshold_comes_down_after_enough_agreement() -> None:
    state = hits(hits(GuardState(), (), 300), (), 0, wrong=6)
    raised = standing(state, (), POLICY).threshold
    assert raised > POLICY.uncertified
    assert standing(hits(state, (), 1_500), (), POLICY).threshold < raised


def held_back(state: GuardState, count: int, *, agreed: bool) -> GuardState:
    """Candidates that were not served and were compared with the fresh answer."""
    for _ in range(count):
        seen = Observed(similarity=0.96, agreed=agreed)
        state = observe(state, ("faq",), seen, POLICY)
    return state


def test_hits_go_off_where_all_are_wrong_and_on_again_after_enough_agreement() -> None:
    state = GuardState()
    for _ in range(60):
        seen = Observed(similarity=1.0, served=True, agreed=False)
        state = observe(state, ("faq",), seen, POLICY)
    assert standing(state, ("faq",), POLICY).off
    assert standing(held_back(state, 200, agreed=False), ("faq",), POLICY).off, "control"
    state = held_back(state, 50_000, agreed=True)
    assert not standing(state, ("faq",), POLICY).off


def test_a_threshold_above_every_similarity_comes_down_though_nothing_is_served() -> None:
    state = hits(GuardState(), ("faq",), 30_000)
    for _ in range(4):
        seen = Observed(similarity=1.0, served=True, agreed=False)
        state = observe(state, ("faq",), seen, POLICY)
    assert standing(state, ("faq",), POLICY).off
    assert not standing(held_back(state, POLICY.enough + 1, agreed=True), ("faq",), POLICY).off


def test_partitions_are_forgotten_before_they_are_too_many_and_what_they_saw_is_not() -> None:
    state = hits(GuardState(), ("faq", "wrong"), 0, wrong=6)
    for at in range(1_000):
        state = observe(state, ("faq", f"p{at}"), Observed(similarity=0.95, served=True), POLICY)
        state = observe(state, ("faq", f"q{at}"), Observed(), POLICY)
    assert len(state.levels) == 128
    assert "faq/wrong" in state.levels, "an alarm is not forgotten"
    assert "faq/p999" in state.levels
    assert not any(name.startswith("faq/q") for name in state.levels), "nothing was found there"
    assert state.levels[""].hits == state.levels["faq"].hits == 1_006
    assert state.levels[""].lookups == 2_006


def test_what_two_processes_saw_is_counted_together_in_any_order() -> None:
    seen = [Observed(similarity=0.9 + at / 1_000, served=True) for at in range(50)]
    mine = [Happening(path=("faq",), seen=each) for each in seen]
    verdicts = [Judgement(similarity=each.similarity or 0.0, agreed=True) for each in seen]
    theirs = [Happening(path=("faq",), seen=each) for each in verdicts]
    one = counted(counted(GuardState(), mine, POLICY), theirs, POLICY)
    other = counted(counted(GuardState(), theirs, POLICY), mine, POLICY)
    assert standing(one, ("faq",), POLICY) == standing(other, ("faq",), POLICY)
    assert (one.levels["faq"].hits, one.levels["faq"].hits_judged) == (50, 50)
    assert one.verifications == other.verifications == 50


def test_the_state_survives_json() -> None:
    state = hits(GuardState(), ("faq", "ab12"), 30, wrong=2)
    again = state_from_json(state_json(state))
    assert standing(again, ("faq", "ab12"), POLICY) == standing(state, ("faq", "ab12"), POLICY)
