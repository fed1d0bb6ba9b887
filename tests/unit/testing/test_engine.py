"""Starting the engine: what is refused before anything starts, and what is passed on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from ragcache.testing import EngineOptions, start_engine
from ragcache.testing.engine import EngineError, serve_arguments


def refusal(options: EngineOptions) -> str:
    with pytest.raises(EngineError) as refused, start_engine(options):
        pass
    return str(refused.value)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(EngineOptions(model=tmp_path))


def test_a_block_size_that_would_fail_minutes_later_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "multiples of 32" in refusal(EngineOptions(model=tmp_path, block_size=16))


def test_missing_vllm_names_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = refusal(EngineOptions(model=tmp_path))
    for word in ("torch==2.13.0+cpu", "RAGCACHE_BASE_URL", "RAGCACHE_API_KEY"):
        assert word in message


def test_a_server_that_does_not_start_shows_the_end_of_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    failing = tmp_path / "vllm_command.py"
    failing.write_text("import sys\nprint('no memory left for KV blocks')\nsys.exit(7)\n")
    monkeypatch.setattr("ragcache.testing.engine._COMMAND", failing)
    assert "no memory left for KV blocks" in refusal(EngineOptions(model=tmp_path))


def test_a_server_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    hanging = tmp_path / "vllm_command.py"
    hanging.write_text("import time\ntime.sleep(120)\n")
    monkeypatch.setattr("ragcache.testing.engine._COMMAND", hanging)
    message = refusal(EngineOptions(model=tmp_path, start_timeout_s=0.5))
    assert "start_timeout_s" in message


def test_a_port_taken_in_between_is_tried_again_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    calls = tmp_path / "calls"
    taken = tmp_path / "vllm_command.py"
    taken.write_text(
        f"open({str(calls)!r}, 'a').write('x')\nraise SystemExit('Address already in use')\n"
    )
    monkeypatch.setattr("ragcache.testing.engine._COMMAND", taken)
    assert "already in use" in refusal(EngineOptions(model=tmp_path))
    assert calls.read_text() == "xxx"


def test_options_become_arguments(tmp_path: Path) -> None:
    options = EngineOptions(
        model=tmp_path, block_size=64, kv_blocks=40, kv_events="ipc:///tmp/kv", arguments=("--x",)
    )
    arguments = serve_arguments(options, 8123)
    given = dict(itertools.pairwise(arguments))
    assert given["--host"] == "127.0.0.1"
    assert given["--port"] == "8123"
    assert given["--dtype"] == "float32"
    assert given["--block-size"] == "64"
    assert given["--num-gpu-blocks-override"] == "40"
    assert json.loads(given["--kv-events-config"])["endpoint"] == "ipc:///tmp/kv"
    assert arguments[-1] == "--x"
    assert {"--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details"} <= set(
        arguments
    )


def test_no_fixed_number_of_blocks_and_no_events_unless_asked(tmp_path: Path) -> None:
    arguments = serve_arguments(EngineOptions(model=tmp_path), 8123)
    assert "--num-gpu-blocks-override" not in arguments
    assert "--kv-events-config" not in arguments
