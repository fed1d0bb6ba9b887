"""`ragcache batch`: every line answered once, whatever stops it, stored answers without a call."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from ragcache.cli.batching import answered_marks, read_lines, request_of
from ragcache.errors import ConfigError
from ragcache.types import Document, Message
from tests.doubles.upstream import Reply


def lines(count: int, tenant: str = "") -> list[dict]:
    """Return requests over pairs of documents, each pair asked twice."""
    rows = [
        {
            "id": f"r{n}",
            "question": f"What is the fee of port {n}?",
            "documents": [f"The fee of port {n % 3} is 80.", {"text": "Fees are due daily."}],
        }
        for n in range(count)
    ]
    return [row | {"tenant": tenant} for row in rows] if tenant else rows


@pytest.fixture
def ready(cli, upstream, tmp_path, tenant):
    """The command line with a fake provider, and a file of six requests."""
    upstream.script = lambda body: Reply(text="The fee is 80.")
    cli.env |= {
        "RAGCACHE_API__BASE_URL": upstream.base_url,
        "RAGCACHE_MODEL__NAME": "fake",
        "RAGCACHE_EMBEDDING__MODEL": "",
        "RAGCACHE_TELEMETRY__RECORD": "false",
        "RAGCACHE_BUDGETS__STORE_MS": "10000",
        "RAGCACHE_BUDGETS__PUT_MS": "10000",
        "RAGCACHE_SECURITY__SIGNING_KEYS": '{"k": "a secret of the tests"}',
        "RAGCACHE_STORE__MAINTAIN_EVERY_S": "0",
    }
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in lines(6)) + "\n\n")
    return cli, file


def answers(file) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_each_line_is_answered_once_and_a_second_run_asks_for_nothing(ready, upstream, tenant):
    cli, file = ready
    told = cli("batch", file, "--tenant", tenant, "--json").json
    assert (told["requests"], told["asked"], told["failed"]) == (6, 6, 0)
    out = file.with_name("prompts.answers.jsonl")
    assert sorted(row["id"] for row in answers(out)) == [f"r{n}" for n in range(6)]
    assert {row["text"] for row in answers(out)} == {"The fee is 80."}
    assert len(upstream.bodies) == 6
    again = cli("batch", file, "--tenant", tenant, "--json").json
    assert (again["before"], again["asked"], again["hits"]) == (6, 0, 0)
    assert len(upstream.bodies) == 6


def test_stored_answers_come_first_and_without_a_call(ready, upstream, tenant, tmp_path):
    cli, file = ready
    some = tmp_path / "some.jsonl"
    some.write_text("".join(file.read_text().splitlines(keepends=True)[3:5]))
    cli("batch", some, "--tenant", tenant)
    asked = len(upstream.bodies)
    told = cli("batch", file, "--tenant", tenant, "--json").json
    assert (told["hits"], told["asked"]) == (2, 4)
    assert len(upstream.bodies) == asked + 4
    rows = answers(file.with_name("prompts.answers.jsonl"))
    assert [row["id"] for row in rows[:2]] == ["r3", "r4"]


def test_what_failed_is_asked_again_and_a_line_that_was_cut_too(ready, upstream, tenant):
    cli, file = ready
    upstream.script = lambda body: (
        Reply(status=400) if "port 2?" in str(body["messages"]) else Reply(text="The fee is 80.")
    )
    told = cli("batch", file, "--tenant", tenant, "--json", code=1)
    assert json.loads(told.out)["failed"] == 1
    assert "line 3" in told.err
    out = file.with_name("prompts.answers.jsonl")
    whole = out.read_text()
    out.write_text(whole[:-20])  # killed in the middle of a line
    upstream.script = lambda body: Reply(text="The fee is 80.")
    told = cli("batch", file, "--tenant", tenant, "--json").json
    assert told["before"] == 4
    assert told["asked"] + told["hits"] == 2
    assert sorted(row["id"] for row in answers(out)) == [f"r{n}" for n in range(6)]


def test_a_run_that_is_killed_goes_on_where_it_was(ready, upstream, tenant, tmp_path):
    cli, file = ready
    upstream.script = lambda body: Reply(text="The fee is 80.", delay_s=0.3)
    out = file.with_name("prompts.answers.jsonl")
    words = ("-m", "ragcache", "batch", str(file), "--tenant", tenant, "--concurrency", "1")
    running = subprocess.Popen(
        [sys.executable, *words],
        env={**__import__("os").environ, **cli.env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (out.exists() and len(out.read_text().splitlines()) >= 2):
        assert time.monotonic() < deadline
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = len(answered_marks(out))
    assert 2 <= before < 6
    told = cli("batch", file, "--tenant", tenant, "--json").json
    assert told["before"] == before
    assert sorted(row["id"] for row in answers(out)) == [f"r{n}" for n in range(6)]


def test_a_line_that_was_changed_is_another_and_a_line_twice_is_two(tmp_path):
    file = tmp_path / "p.jsonl"
    row = lines(1)[0]
    file.write_text("\n".join(json.dumps(r) for r in (row, row, row | {"system": "Be brief."})))
    marks = [line.mark for line in read_lines(file, "t")]
    assert len(set(marks)) == 3
    assert [line.mark for line in read_lines(file, "t")] == marks
    assert not set(marks) & {line.mark for line in read_lines(file, "other")}


def test_a_line_is_a_request():
    request = request_of(
        {
            "id": 1,
            "question": "q",
            "tenant": "a",
            "documents": ["one", {"text": "two", "source": "s", "access": ["hr"]}],
            "history": [{"role": "user", "content": "hi"}],
            "access": ["hr"],
            "params": {"temperature": 0},
        },
        None,
    )
    assert request.documents == (
        Document(text="one"),
        Document(text="two", source="s", access=frozenset({"hr"})),
    )
    assert request.history == (Message(role="user", content="hi"),)
    assert request.access == frozenset({"hr"})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"question": 1}', 'line 1: a line must be an object with a "question"'),
        ("[]", "must be an object"),
        ('{"question": "q"}', "--tenant"),
        ('{"question": "q", "tenant": "t", "documnets": []}', "documnets"),
        ('{"question": "q", "tenant": "t", "documents": [{"txt": "x"}]}', "txt"),
        ("{", "line 1"),
    ],
)
def test_a_line_that_is_no_request_is_named(tmp_path, line, said):
    file = tmp_path / "p.jsonl"
    file.write_text(line)
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        read_lines(file, None)


def test_an_output_of_something_else_is_left_alone(tmp_path):
    out = tmp_path / "notes.jsonl"
    out.write_text('{"note": 1}\n')
    with pytest.raises(ConfigError, match="--out"):
        answered_marks(out)
    assert out.read_text() == '{"note": 1}\n'
