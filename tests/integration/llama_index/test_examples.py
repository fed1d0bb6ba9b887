"""The example runs as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.upstream import Reply

pytestmark = pytest.mark.llama_index

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_llama_index_rag(upstream, postgres) -> None:
    upstream.answer(Reply(text="The fee is 80 per day."))
    settings = {
        "OPENAI_BASE_URL": upstream.base_url,
        "OPENAI_API_KEY": "unused",
        "OPENAI_MODEL": "fake",
        "RAGCACHE_STORE__DSN": postgres.app,
        "RAGCACHE_EMBEDDING__MODEL": "",
        "RAGCACHE_BUDGETS__STORE_MS": "10000",
        "RAGCACHE_BUDGETS__PUT_MS": "10000",
        "RAGCACHE_SECURITY__SIGNING_KEYS": '{"k1": "a secret of the tests"}',
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "llama_index_rag.py")],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    first, second, streamed = done.stdout.splitlines()
    assert "fwd=miss" in first
    assert second.startswith("The fee is 80 per day. | ragcache; hit")
    assert "detail=exact" in second
    assert streamed == "The fee is 80 per day."
    assert len(upstream.bodies) == 1
