"""What a vLLM server says of itself is read as it is; what it does not say is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ragcache.targets.engine_state import EngineState, read_metrics, restarted

TEXT = """\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="smollm2"} 20035.0
vllm:prefix_cache_queries_total{engine="1",model_name="smollm2"} 65.0
vllm:prefix_cache_queries_created{engine="0",model_name="smollm2"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="smollm2"} 9920.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="smollm2"} 0.0
vllm:num_requests_running{engine="0",model_name="smollm2"} 2.0
vllm:num_requests_waiting{engine="0",model_name="smollm2"} 0.0
vllm:num_preemptions_total{engine="0",model_name="smollm2"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="smollm2"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="smollm2"} 20100.0
vllm:cache_config_info{block_size="32",cache_dtype="auto",enable_prefix_caching="True",kv_cache_size_tokens="23296",num_gpu_blocks="728",sliding_window="None"} 1.0
python_info{implementation="CPython"} 1.0
"""


def test_metrics_are_read():
    state = read_metrics(TEXT)
    assert state == EngineState(
        block_size=32,
        kv_blocks=728,
        kv_tokens=23296,
        prefix_caching=True,
        kv_usage=0.25,
        running=2,
        waiting=0,
        queried_tokens=20100,
        hit_tokens=9920,
        offload_hit_tokens=0,
        prompt_tokens=20100,
        preemptions=3,
        started_at=1.7e9,
    )
    assert state.hit_rate == pytest.approx(9920 / 20100)


def test_what_is_not_said_is_unknown():
    assert read_metrics("") == EngineState()
    assert read_metrics("up 1\n").hit_rate is None
    assert read_metrics(TEXT.replace('block_size="32"', 'block_size="None"')).block_size is None


def test_a_restart_is_known_by_the_time_of_its_counters_or_by_counts_that_fell():
    state = read_metrics(TEXT)
    assert not restarted(EngineState(), state)
    assert not restarted(state, replace(state, queried_tokens=99999))
    assert restarted(state, replace(state, started_at=1.8e9, queried_tokens=99999))
    silent = replace(state, started_at=None)
    assert restarted(silent, replace(silent, queried_tokens=5))
    assert not restarted(silent, silent)
