"""Both frameworks over a real engine in a user's script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.prove, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("in_frameworks.py")


@pytest.fixture(scope="module")
def seen(smollm: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(smollm)],
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        timeout=500,
        process_group=0,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("SEEN"))
    return json.loads(line.removeprefix("SEEN"))


@pytest.mark.parametrize("name", ["langchain", "llama_index"])
def test_P07_a_tenant_finds_its_own_prefix_and_no_other(seen, name):
    cold, again, other = seen[name]["cached"]
    assert cold == other == 0
    assert again > 0


def test_langchains_model_says_what_the_engine_says(seen):
    langchain = seen["langchain"]
    assert langchain["read"] == langchain["cached"]
    # Ranks flap: all but the tail is found all the same.
    assert langchain["read"][1] >= 0.8 * langchain["tokens"][1]
    assert langchain["whole"] == langchain["thread"] == "".join(langchain["pieces"])
    assert len(langchain["pieces"]) > 3
    assert langchain["called"] == ["count"]


def test_llama_indexs_llm_streams_what_it_answers(seen):
    llama_index = seen["llama_index"]
    assert llama_index["texts"][0] == llama_index["texts"][1]
    assert "".join(llama_index["pieces"]) == llama_index["whole"]
