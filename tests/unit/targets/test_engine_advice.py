"""Figures of an engine become advice only where something is to be changed."""

from __future__ import annotations

import pytest

from ragcache.targets.engine_advice import advice, figures, is_fit
from ragcache.targets.engine_state import EngineState

WELL = EngineState(
    block_size=16,
    kv_tokens=400_000,
    prefix_caching=True,
    kv_usage=0.4,
    running=12,
    waiting=0,
    queried_tokens=1_000_000,
    hit_tokens=700_000,
    preemptions=0,
)


def test_where_all_is_well_nothing_is_advised():
    assert advice(WELL) == ()
    assert advice(EngineState()) == ()
    assert figures(WELL) == (
        "KV usage 40%, prefix hit rate 70%, KV tokens 400,000, block size 16, running 12, "
        "waiting 0, preemptions 0"
    )
    assert figures(EngineState()) == "no figures of vLLM"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"prefix_caching": False}, "--enable-prefix-caching"),
        ({"preemptions": 3}, "3 times a running request was put back"),
        ({"kv_usage": 0.97}, "97% of the KV blocks"),
        ({"hit_tokens": 50_000}, "start vLLM with --kv-cache-metrics"),
        ({"hit_tokens": 50_000, "evictions": 9}, "too small for the documents in use"),
        ({"hit_tokens": 50_000, "evictions": 0}, "the prompts differ early"),
        ({"waiting": 4}, "raise max_num_seqs"),
    ],
)
def test_each_fault_has_its_advice(changes, told):
    from dataclasses import replace

    (sentence,) = advice(replace(WELL, **changes))
    assert told in sentence


def test_little_traffic_tells_nothing():
    assert advice(EngineState(queried_tokens=500, hit_tokens=0, prefix_caching=True)) == ()


def test_an_engine_without_prefix_caching_is_not_fit():
    assert not is_fit(EngineState(prefix_caching=False))
    assert is_fit(WELL)
