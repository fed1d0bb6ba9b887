"""What `--json` prints has the same names and types in every release.

After a change on purpose: RAGCACHE_SNAPSHOTS=write python -m pytest tests/integration/cli/test_schemas.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import typer

from ragcache import factory
from ragcache.cli.app import app
from tests.docs.world import World
from tests.doubles.embedder import TableEmbedder

from .conftest import shape

SCHEMAS = Path(__file__).parent / "schemas"
#: How each verb is asked for JSON in a folder that has everything.
ASKED = {
    "batch": "batch asked.jsonl --tenant acme",
    "bench answers": "bench answers --pairs pairs.jsonl",
    "bench layout": "bench layout --docs documents.jsonl --trace trace.jsonl",
    "bench replay": "bench replay --docs documents.jsonl --trace trace.jsonl",
    "bench stream": "bench stream --file questions.jsonl",
    "calibrate": "calibrate pairs.jsonl",
    "diff": "diff monday.json tuesday.json",
    "doctor": "doctor",
    "inspect": "inspect --tenant acme",
    "lint": "lint clocked.py",
    "maintain": "maintain",
    "migrate": "migrate",
    "purge": "purge --tenant acme --yes",
    "reembed": "reembed",
    "report": "report",
    "report --scenarios": "report --scenarios",
    "stats": "stats",
    "verify": "verify",
    "vllm-args": "vllm-args",
    "warm": "warm --tenant acme",
    "why": "why served-1",
}
#: `init` gives the roles new passwords, which the other tests use too.
ELSEWHERE = {"init": "test_database.py"}


def verbs_with_json() -> set[str]:
    def walk(group, *before):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from walk(command, *before, name)
            elif any("--json" in parameter.opts for parameter in command.params):
                yield " ".join((*before, name))

    return set(walk(typer.main.get_command(app)))


def test_every_verb_with_json_is_asked():
    asked = {verb.partition(" --")[0] for verb in ASKED}
    assert verbs_with_json() == asked | set(ELSEWHERE)


def test_no_schema_is_left_of_a_verb_that_is_gone():
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {v.replace(" ", "-") for v in ASKED}


@pytest.fixture
def world(tmp_path, monkeypatch, fresh_database, upstream):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(factory, "embedder_from", lambda settings: TableEmbedder())
    row = {"id": "1", "question": "What is the fee?", "documents": ["The fee is 80."]}
    (tmp_path / "asked.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "clocked.py").write_text('import time\nSYSTEM = f"Now: {time.time()}"\n')
    return World(tmp_path, fresh_database, upstream.base_url)


#: These load a sentence encoder, or vLLM.
SLOW = {"bench answers", "bench replay", "bench stream", "vllm-args"}
VERBS = [
    pytest.param(verb, marks=[pytest.mark.prove] if verb in SLOW else []) for verb in sorted(ASKED)
]


@pytest.mark.parametrize("verb", VERBS)
def test_the_schema_of(verb, world):
    if verb in ("inspect", "reembed", "purge", "stats"):
        world.run("ragcache batch asked.jsonl --tenant acme")
    printed = json.loads(world.run(f"ragcache {ASKED[verb]} --json", code=None))
    found = json.dumps(shape(printed), indent=1) + "\n"
    kept = SCHEMAS / f"{verb.replace(' ', '-')}.json"
    if os.environ.get("RAGCACHE_SNAPSHOTS") == "write":
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(found, encoding="utf-8")
    assert found == kept.read_text(encoding="utf-8")
