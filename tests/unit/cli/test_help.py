"""What `--help` says, for each verb, and what it costs.

After a change on purpose: RAGCACHE_SNAPSHOTS=write python -m pytest tests/unit/cli/test_help.py
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ragcache.cli.app import app

SNAPSHOTS = Path(__file__).parent / "snapshots"


def flattened(group, *before: str):
    """Return every verb by its words: ("bench", "layout") too."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from flattened(command, *before, name)
        else:
            yield (*before, name), command


COMMANDS = {" ".join(words): c for words, c in flattened(typer.main.get_command(app))}
#: What the settings, the store and the models bring; none of it is needed to say what verbs do.
HEAVY = ("numpy", "pydantic", "pydantic_settings", "psycopg", "httpx", "anyio", "openai", "torch")


def helped(*words: str) -> str:
    runner = CliRunner(env={"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1"})
    result = runner.invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines()) + "\n"


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_the_help_of_a_verb_changes_only_on_purpose(verb):
    kept = SNAPSHOTS / f"{verb.replace(' ', '-')}.txt"
    if os.environ.get("RAGCACHE_SNAPSHOTS") == "write":
        kept.write_text(helped(*verb.split()), encoding="utf-8")
    assert kept.is_file(), f"no snapshot of {verb}: see the top of this file"
    assert helped(*verb.split()) == kept.read_text(encoding="utf-8")


def test_no_snapshot_is_left_of_a_verb_that_is_gone():
    assert {p.stem for p in SNAPSHOTS.glob("*.txt")} == {v.replace(" ", "-") for v in COMMANDS}


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_each_verb_shows_one_example_that_names_known_options(verb):
    command = COMMANDS[verb]
    words = (command.epilog or "").removeprefix("Example: ").split()
    assert " ".join(words).startswith(f"ragcache {verb}")
    known = {name for parameter in command.params for name in parameter.opts}
    assert {w for w in words if w.startswith("--")} <= known


def test_help_loads_nothing_heavy():
    program = (
        "import sys; from ragcache.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip().endswith("[]")


def test_help_costs_little_more_than_what_it_is_made_of():
    """Half a second on a common machine; measured against the libraries alone, in one run."""

    def seconds(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [
        (seconds("-m", "ragcache", "--help"), seconds("-c", "import typer, rich.console"))
        for _ in range(3)
    ]
    assert min(ours for ours, _ in pairs) < 4 * min(theirs for _, theirs in pairs)
