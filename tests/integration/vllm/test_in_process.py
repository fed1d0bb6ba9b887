"""VLLMEngineTarget: a real engine inside a user's script, from its refusals to its end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# An engine of its own: minutes on two cores.
pytestmark = [pytest.mark.vllm, pytest.mark.prove, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).with_name("in_process.py")
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def seen(smollm: Path) -> dict[str, Any]:
    """What the script saw; it ends by itself, and so do the engine's processes."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(smollm), "6"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        process_group=0,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("SEEN"))
    return json.loads(line.removeprefix("SEEN")) | {"log": done.stdout + done.stderr}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("unknown", "no engine argument 'blok_size': did you mean 'block_size'"),
        ("block", "multiples of 32"),
        ("value", "invalid choice: 'float7'"),
        ("offload", "no KV offloading on cpu"),
    ],
)
def test_a_wrong_argument_is_told_before_the_engine_starts(seen, name, told):
    assert told in seen["refused"][name]
    # The first of them loads vLLM's parser; none loads a model.
    assert seen["refused"]["block_s"] < 1


def test_cached_tokens_are_whole_blocks_of_the_same_salt(seen):
    reuse = seen["reuse"]
    assert reuse["again"]["cached"] == (reuse["again"]["prompt"] - 1) // 32 * 32 > 0
    assert reuse["cold"]["cached"] == reuse["other"]["cached"] == reuse["none"]["cached"] == 0
    assert seen["block_size"] == 32


def test_cached_tokens_of_each_request_equal_the_engines_own_counters(seen):
    for name, told in seen["differences"].items():
        assert told["cached"] == told["hits"], name
        assert told["prompt"] == told["looked_up"] > 0, name
    assert sum(told["hits"] for told in seen["differences"].values()) > 0


def test_P07_the_same_tenant_hits_and_another_does_not(seen):
    differences = seen["differences"]
    again = differences["again"]
    assert again["cached"] == (again["prompt"] - 1) // 32 * 32 > 0
    assert differences["cold"]["cached"] == differences["other_tenant"]["cached"] == 0


def test_a_prefix_is_reused_up_to_the_first_document_that_differs(seen):
    differences = seen["differences"]
    # The head alone, then the head and the first document, in whole blocks.
    head = differences["begun_otherwise"]["cached"]
    assert head < 64
    assert head + 64 < differences["swapped"]["cached"] < differences["cold"]["prompt"] / 2


def test_one_character_at_the_start_leaves_nothing(seen):
    assert seen["differences"]["one_character"]["cached"] == 0
    # Control: unchanged, it was found.
    assert seen["differences"]["again"]["cached"] > 0


def test_what_is_served_was_predicted(seen):
    for call in seen["reuse"].values():
        assert call["predicted"] == call["cached"]
    right = sum(predicted == served for predicted, served in seen["trace"])
    assert right >= 0.95 * len(seen["trace"])
    assert sum(served for _, served in seen["trace"]) > 0


def test_a_stream_says_what_a_whole_answer_says(seen):
    answers = seen["answers"]
    assert "".join(answers["pieces"]) == answers["whole"] == "The capital of France is Paris."
    assert len(answers["pieces"]) > 3
    assert answers["finish"] == "stop"
    assert answers["usage"]
    assert answers["tokens"]


def test_structured_output_and_tools_work(seen):
    assert 0 <= json.loads(seen["answers"]["structured"])["boxes"] <= 9
    # Whether the arguments fit the schema is the model's affair: this one is small.
    for calls in (seen["answers"]["called"], seen["answers"]["streamed"]):
        (called,) = calls
        assert called["name"] == "count"


@pytest.mark.parametrize("way", ["complete", "stream"])
def test_faults_have_the_status_and_kind_of_vllms_server(seen, way):
    faults = seen["faults"]
    assert faults[f"too_long_{way}"] == [400, "BadRequestError"]
    assert faults[f"malformed_{way}"] == [400, "BadRequestError"]
    assert faults[f"model_{way}"] == [404, "NotFoundError"]


def test_leaving_a_stream_ends_the_computation(seen):
    assert seen["faults"]["left_running"] == 0


def test_the_engine_ends_cleanly(seen):
    assert seen["lost"] == 0
    assert seen["close_s"] < 30
    assert "EngineDeadError" not in seen["log"]
