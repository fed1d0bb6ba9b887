"""What every test may use."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

pytest_plugins = [
    "tests.fixtures_browser",
    "tests.fixtures_pgbouncer",
    "tests.fixtures_pipeline",
    "tests.fixtures_postgres",
    "tests.fixtures_redis",
    "tests.fixtures_vllm",
    "tests.fixtures_langchain",  # builds on those above
    "tests.fixtures_llama_index",  # as well
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to the other leg.

    LlamaIndex's OpenAI classes refuse the `openai` package that the rest is tested with: their
    tests run in an environment of their own (`make test-llama-index`).
    """
    if importlib.util.find_spec("llama_index.llms") is not None:
        return
    kept = [item for item in items if item.get_closest_marker("llama_index") is None]
    if left_out := [item for item in items if item not in set(kept)]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Public data for benchmarks: `RAGCACHE_DATA`, or `shared/data` beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("RAGCACHE_DATA") or beside)
    assert folder.is_dir(), f"no data in {folder}: set RAGCACHE_DATA to the folder that holds it"
    return folder
