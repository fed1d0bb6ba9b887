"""Presets hold what the platform can do, and every argument is one of vLLM's own."""

from __future__ import annotations

import itertools
import json

import pytest

from ragcache.errors import ConfigError
from ragcache.targets.engine_options import (
    PLATFORMS,
    PRESETS,
    faults,
    flags_of,
    known_arguments,
    parsed_arguments,
    preset_arguments,
)


@pytest.fixture(scope="module")
def known() -> frozenset[str]:
    names = known_arguments()
    assert len(names) > 150
    return names


@pytest.mark.parametrize(("preset", "platform"), list(itertools.product(PRESETS, PLATFORMS)))
def test_vllms_own_parser_takes_every_preset(known, preset, platform):
    made = preset_arguments(preset, platform, disk_path="/var/cache/kv")
    assert faults(made, platform=platform, known=known) == ()
    namespace = vars(parsed_arguments(flags_of(made)))
    for name, value in made.items():
        if isinstance(value, dict):
            assert namespace[name].kv_connector == value["kv_connector"]
        else:
            assert namespace[name] == value
    assert namespace["enable_prefix_caching"] is True
    assert namespace["enable_prompt_tokens_details"] is True


def test_presets_differ_where_they_should():
    balanced, long, many = (preset_arguments(p, "cuda", disk_path="/kv") for p in PRESETS)
    assert "kv_cache_dtype" not in balanced
    assert long["kv_cache_dtype"] == many["kv_cache_dtype"] == "fp8"
    assert long["kv_offloading_size"] == 16
    assert long["max_num_seqs"] < many["max_num_seqs"]
    tiers = many["kv_transfer_config"]["kv_connector_extra_config"]["secondary_tiers"]
    assert tiers == [{"type": "fs", "root_dir": "/kv"}]
    assert preset_arguments("many_tenants", "cuda")["kv_offloading_size"] == 16


@pytest.mark.parametrize("preset", PRESETS)
def test_on_cpu_nothing_is_asked_that_it_cannot_do(preset):
    made = preset_arguments(preset, "cpu")
    assert not {"kv_cache_dtype", "kv_offloading_size", "gpu_memory_utilization"} & set(made)


def test_the_disk_tier_is_one_of_vllms_own():
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

    assert "fs" in SecondaryTierFactory._registry


@pytest.mark.parametrize(
    ("arguments", "platform", "told"),
    [
        ({"blok_size": 16}, "cuda", "no engine argument 'blok_size': did you mean 'block_size'"),
        (
            {"block_size": 16},
            "cpu",
            "block_size 16: vLLM on CPU computes attention in multiples of 32",
        ),
        ({"gpu_memory_utilization": 85}, "cuda", "gpu_memory_utilization 85: it is a share"),
        ({"enable_prefix_caching": False}, "cuda", "no prefix would ever be reused"),
        ({"kv_offloading_size": 4}, "cpu", "no KV offloading on cpu"),
        (
            {"kv_transfer_config": {"kv_connector": "OffloadingConnector"}},
            "cpu",
            "no KV offloading",
        ),
        ({"kv_cache_dtype": "fp8"}, "cpu", "kv_cache_dtype fp8: not on cpu"),
    ],
)
def test_what_is_wrong_is_told(known, arguments, platform, told):
    (fault,) = faults(arguments, platform=platform, known=known)
    assert told in fault


def test_what_is_right_is_not_told(known):
    fine = {"block_size": 16, "kv_cache_dtype": "fp8", "max_model_len": 32768}
    assert faults(fine, platform="cuda", known=known) == ()
    assert faults({"block_size": 64}, platform="cpu", known=known) == ()
    assert faults({"anything": 1}, platform="cuda", known=()) == ()


def test_a_value_that_vllm_refuses_is_told_in_its_words():
    with pytest.raises(ConfigError, match=r"vLLM refuses its arguments.*kv-cache-dtype.*float7"):
        parsed_arguments(["--kv-cache-dtype", "float7"])


def test_arguments_become_flags():
    made = {
        "enable_prefix_caching": True,
        "enable_chunked_prefill": False,
        "block_size": 16,
        "kv_events_config": {"publisher": "zmq"},
        "served_model_name": ["a", "b"],
        "seed": None,
    }
    assert flags_of(made) == [
        "--enable-prefix-caching",
        "--no-enable-chunked-prefill",
        "--block-size", "16",
        "--kv-events-config", json.dumps({"publisher": "zmq"}),
        "--served-model-name", "a", "b",
    ]  # fmt: skip


def test_an_unknown_preset_is_named():
    with pytest.raises(ConfigError, match="'huge' is unknown: use balanced"):
        preset_arguments("huge", "cuda")
