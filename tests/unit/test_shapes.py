"""The two further shapes of settings load as they are, and each of their keys has a meaning."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ragcache.errors import ConfigError
from ragcache.factory import _policies
from ragcache.settings import Settings

SERVER = """\
[server]
host = "0.0.0.0"
port = 8000
upstream_base_url = "https://llm.example.test/api"   # any OpenAI-compatible server, a vLLM one included

[model]
name = "qwen2.5-72b-instruct"
enable_prefix_caching = true      # engine: reuse KV by block
gpu_memory_utilization = 0.85     # engine: bounds the KV cache
block_size = 16                   # tokens in a KV block
max_model_len = 32768

[cache]
prefix_cache_enabled = true
semantic_cache_enabled = true
semantic_threshold = 0.93         # cosine similarity
semantic_ttl_seconds = 3600
bad_hit_guard = 0.005
"""
CLIENT: dict[str, Any] = {
    "api": {
        "base_url": "https://llm.example.test/api",
        "api_key_env": "LLM_API_KEY",
        "timeout_seconds": 60,
    },
    "prompt_layout": {
        "stable_prefix": ["<system text>", "<tool schema text>"],
        "semi_stable": ["retrieved_docs"],
        "variable_tail": ["user_question", "latest_turn"],
    },
    "semantic_cache": {
        "enabled": True,
        "embedding_model": "bge-m3",
        "threshold": 0.93,
        "ttl_seconds": 3600,
        "store": "redis",
    },
    "observability": {
        "track_prefix_hit_rate": True,
        "track_semantic_hit_rate": True,
        "track_bad_hit_rate": True,
        "track_ttft_ms": True,
    },
}


def load(tmp_path: Path, shape: str | dict[str, Any]) -> Settings:
    name, text = (
        ("config.toml", shape) if isinstance(shape, str) else ("settings.json", json.dumps(shape))
    )
    path = tmp_path / name
    path.write_text(text)
    return Settings.load(path)


def changed(section: str, **values: Any) -> dict[str, Any]:
    return CLIENT | {section: CLIENT[section] | values}


def test_the_servers_shape_loads_as_it_is(tmp_path):
    settings = load(tmp_path, SERVER)
    assert (settings.server.host, settings.server.port) == ("0.0.0.0", 8000)
    assert settings.api.base_url == "https://llm.example.test/api"
    assert settings.model.name == "qwen2.5-72b-instruct"
    assert settings.engine.args == {
        "enable_prefix_caching": True,
        "gpu_memory_utilization": 0.85,
        "block_size": 16,
        "max_model_len": 32768,
    }
    policies = _policies(settings)
    assert policies.layout.ordering == "prefix_tree"
    assert policies.layout.window_tokens == 32768
    assert policies.lookup.threshold == policies.lookup.uncertified_threshold == 0.93
    assert policies.admission.ttl_s == 3600
    assert policies.guarding.bad_hit_guard == 0.005
    assert policies.guarding.floor == 0.93
    assert settings.embedding.model


def test_the_clients_shape_loads_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("LLM_API_KEY", "sk-1")
    settings = load(tmp_path, CLIENT)
    assert settings.api.base_url == "https://llm.example.test/api"
    assert settings.api.key() == "sk-1"
    assert settings.api.timeout_s == 60
    assert settings.prompt.stable_prefix == ("<system text>", "<tool schema text>")
    assert settings.embedding.model == "BAAI/bge-m3"
    assert settings.store.kind == "redis"
    policies = _policies(settings)
    assert policies.lookup.threshold == 0.93
    assert policies.admission.ttl_s == 3600
    assert settings.telemetry.record is True


def test_switches_are_carried_out(tmp_path):
    off = SERVER.replace("prefix_cache_enabled = true", "prefix_cache_enabled = false")
    settings = load(
        tmp_path, off.replace("semantic_cache_enabled = true", "semantic_cache_enabled = false")
    )
    policies = _policies(settings)
    assert (policies.layout.ordering, policies.layout.marks) == ("retrieved", "off")
    assert settings.embedding.model == ""
    client = load(tmp_path, changed("semantic_cache", enabled=False, store="postgres"))
    assert client.embedding.model == ""
    assert client.store.kind == "postgres"
    silent = load(
        tmp_path, CLIENT | {"observability": dict.fromkeys(CLIENT["observability"], False)}
    )
    assert (silent.telemetry.record, silent.telemetry.prometheus) == (False, False)
    guard = load(tmp_path, SERVER.replace("bad_hit_guard = 0.005", "bad_hit_guard = 0.01"))
    assert _policies(guard).guarding.bad_hit_guard == 0.01


def test_a_missing_key_takes_its_default(tmp_path):
    settings = load(tmp_path, '[server]\nupstream_base_url = "http://h/v1"\n[cache]\n')
    policies = _policies(settings)
    assert policies.lookup.threshold == 0.93
    assert policies.admission.ttl_s == 3600
    assert settings.server.port == 8000
    client = load(tmp_path, {"semantic_cache": {}})
    assert client.embedding.model == "BAAI/bge-m3"
    assert client.store.kind == "postgres"


@pytest.mark.parametrize(
    ("shape", "unknown", "near"),
    [
        (
            SERVER + "semantic_treshold = 0.9\n",
            "cache.semantic_treshold",
            "cache.semantic_threshold",
        ),
        (SERVER.replace("[model]", "[modle]"), "modle", "model"),
        (
            changed("semantic_cache", ttl_second=1),
            "semantic_cache.ttl_second",
            "semantic_cache.ttl_seconds",
        ),
        (CLIENT | {"observabilty": {}}, "observabilty", "observability"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(tmp_path, shape, unknown, near):
    with pytest.raises(ConfigError, match=f"'{unknown}': did you mean '{near}'"):
        load(tmp_path, shape)


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        (SERVER.replace("port = 8000", "port = 99999"), "server.port"),
        (changed("semantic_cache", store="sqlite"), "store.kind"),
        (changed("prompt_layout", variable_tail=["clock"]), "prompt.variable_tail"),
        (CLIENT | {"api": "https://h"}, "'api' must be a table"),
    ],
)
def test_a_wrong_value_is_named(tmp_path, shape, named):
    with pytest.raises(ConfigError, match=named):
        load(tmp_path, shape)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Today is 2026-11-29. Answer from the documents.", "a clock"),
        ("You answer at 2026-11-29T09:14.", "a clock"),
        ("Current time: 09:14", "a clock"),
        ("Request at 1764400000", "a clock"),
        ("Session 0b8f9a52-3c1e-4a57-9d0f-2f6f5a4d9c11", "a uuid"),
        ("Use seed 42 for sampling", "a seed"),
        ("You are {role}.", "a template mark"),
        ("You are {{ role }}.", "a template mark"),
        ("{% if x %}", "a template mark"),
        ("Hello ${user}", "a template mark"),
        ("Hello %(user)s", "a template mark"),
        ("Hello {}", "a template mark"),
        ("Hello {0}", "a template mark"),
    ],
)
def test_what_is_not_stable_is_refused_and_named(tmp_path, text, kind):
    shape = changed("prompt_layout", stable_prefix=["Stable.", text])
    with pytest.raises(ConfigError, match=rf"stable_prefix\[1\] holds {kind}"):
        load(tmp_path, shape)


@pytest.mark.parametrize(
    "text",
    [
        "Offices are open from 9:00 to 17:00; fees are those of the 2026 tariff.",
        '{"name": "rate", "parameters": {"type": "object", "properties": {}}}',
        '[{"type": "function", "function": {"name": "f", "parameters": {"format": "date-time"}}}]',
        "Article 15, paragraph 3: seeds are taxed at 12.5 %.",
    ],
)
def test_what_is_stable_is_not_refused(tmp_path, text):
    assert load(tmp_path, changed("prompt_layout", stable_prefix=[text])).prompt.stable_prefix == (
        text,
    )


def test_the_shapes_of_the_reference_are_what_is_tested():
    parsed = tomllib.loads(SERVER)
    assert set(parsed) == {"server", "model", "cache"}
    assert sum(len(section) for section in parsed.values()) == 13
    assert sum(len(section) for section in CLIENT.values()) == 15
