"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest_plugins = [
    "tests.fixtures_pgbouncer",
    "tests.fixtures_pipeline",
    "tests.fixtures_postgres",
    "tests.fixtures_vllm",
    "tests.fixtures_langchain",  # builds on those above
]


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Public data for benchmarks: `RAGCACHE_DATA`, or `shared/data` beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("RAGCACHE_DATA") or beside)
    assert folder.is_dir(), f"no data in {folder}: set RAGCACHE_DATA to the folder that holds it"
    return folder
