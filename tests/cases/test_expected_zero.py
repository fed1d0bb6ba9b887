"""A prefix that is not reused for a known reason is no fault of the layout."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from ragcache.providers import find_rules
from ragcache.telemetry.prometheus import PrometheusHook
from ragcache.telemetry.zeros import judged_reuse
from ragcache.types import Reuse
from tests.unit.telemetry.samples import of_miss

LOGPROBS = frozenset({"prompt_logprobs"})
CASES = [
    (480, 0, {"floor": 528, "step": 528}, "below_floor"),
    (1600, 1584, {"floor": 528, "step": 528}, "ok"),
    (1181, 1024, {"floor": 1024, "step": 128}, "ok"),
    (1181, 1152, {"floor": 1024, "step": 128}, "ok"),
    (900, 0, {"floor": 1024, "step": 128}, "below_floor"),
    (3000, 0, {"floor": 16, "step": 16, "params": LOGPROBS}, "not_readable"),
    (3000, 0, {"floor": 16, "step": 16}, "unexpected_miss"),
    (3000, 0, {"floor": None}, "floor_unknown"),
]


@pytest.mark.parametrize(("shared", "cached", "known", "word"), CASES)
def test_M05_an_expected_zero_has_another_word_than_a_fault(shared, cached, known, word):
    assert judged_reuse(shared, cached, **known) == word


def test_M05_only_a_fault_raises_the_regression_counter():
    registry = CollectorRegistry()
    hook = PrometheusHook(registry)
    called = of_miss()[2]
    for shared, cached, _known, word in CASES:
        reuse = Reuse(
            predicted_tokens=shared, served_tokens=cached, cause="" if word == "ok" else word
        )
        hook(replace(called, reuse=reuse))
    counted = registry.get_sample_value
    assert counted("ragcache_lost_reuse_total", {"cause": "unexpected_miss"}) == 3000


def test_M05_the_floor_of_a_known_model_is_known_and_of_another_is_not_guessed():
    assert find_rules("openai", "gpt-4o").min_tokens == 1024
    assert find_rules("openai", "nobody's") is None
