"""Each example runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from langchain_ragcache import RagCacheChatModel, wrap
from tests.doubles.upstream import Reply

EXAMPLES = Path(__file__).parents[3] / "examples"


def two_steps(body: dict[str, Any]) -> Reply:
    if not body.get("tools") or any(m["role"] == "tool" for m in body["messages"]):
        return Reply(text="The fee is 80 per day.")
    call = {"name": "search_tariffs", "arguments": '{"query": "fee"}'}
    calls = [{"id": "call_1", "type": "function", "function": call}]
    return Reply(text="", finish_reason="tool_calls", tool_calls=calls)


@pytest.fixture
def run(brain, postgres):
    """Run an example in a process of its own, against the fake provider and the real store."""
    brain.script = two_steps
    settings = {
        "OPENAI_BASE_URL": brain.base_url,
        "OPENAI_API_KEY": "unused",
        "OPENAI_MODEL": "fake",
        "RAGCACHE_STORE__DSN": postgres.app,
        "RAGCACHE_EMBEDDING__MODEL": "",
        "RAGCACHE_BUDGETS__STORE_MS": "10000",
        "RAGCACHE_BUDGETS__PUT_MS": "10000",
        "RAGCACHE_SECURITY__SIGNING_KEYS": '{"k1": "a secret of the tests"}',
    }

    def started(name: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / name)],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.splitlines()

    return started


def test_langchain_rag(run, brain) -> None:
    first, second, streamed = run("langchain_rag.py")
    assert "fwd=miss" in first
    assert "detail=exact" in second
    assert streamed == "The fee is 80 per day."
    assert len(brain.bodies) == 1


def test_langchain_agent(run, brain) -> None:
    _, second = run("langchain_agent.py")
    assert second.startswith("The fee is 80 per day. | ragcache; hit")
    assert len(brain.bodies) == 3


def test_multi_tenant(run) -> None:
    one, two, other, nobody, refused = run("multi_tenant.py")
    assert "fwd=miss" in one
    assert "hit" in two
    assert "fwd=miss" in other
    assert "fwd=request" in nobody
    assert refused.startswith("refused: two tenants")


def test_existing_chain_diff_changes_one_line(portal, tenant, chat) -> None:
    text = (EXAMPLES / "existing_chain_diff.md").read_text()
    (diff,) = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    removed = [line[1:] for line in diff.splitlines() if line.startswith("-")]
    added = [line[1:] for line in diff.splitlines() if line.startswith("+")]
    assert len(removed) == len(added) == 1
    names = {"ChatOpenAI": lambda model: chat(), "cache": portal, "wrap": wrap}
    exec(added[0].replace('"acme"', f'"{tenant}"'), names)
    assert isinstance(names["llm"], RagCacheChatModel)
