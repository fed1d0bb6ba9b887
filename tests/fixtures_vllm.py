"""One real vLLM engine on CPU for the whole session.

Starting it costs half a minute of CPU time, so every test shares it; a fresh cache salt keeps
what one test has cached out of the next.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from ragcache.testing import Engine, EngineOptions, smollm_path, start_engine


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The folder of the small chat model, converted once and kept between runs."""
    return smollm_path()


@pytest.fixture(scope="session")
def vllm_engine(smollm: Path) -> Iterator[Engine]:
    """A running engine, with KV events at `options.kv_events` and resettable prefix cache."""
    with tempfile.TemporaryDirectory(prefix="ragcache-kv-") as folder:
        options = EngineOptions(
            model=smollm, kv_events=f"ipc://{folder}/events", developer_mode=True
        )
        with start_engine(options) as engine:
            yield engine


@pytest.fixture
def cache_salt() -> str:
    """A salt that no other test uses."""
    return uuid.uuid4().hex


@pytest.fixture
def openai_client(vllm_engine: Engine) -> Iterator[OpenAI]:
    """The official client, against the shared engine."""
    with OpenAI(base_url=vllm_engine.base_url, api_key="unused", max_retries=0) as client:
        yield client
