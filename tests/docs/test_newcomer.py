"""From the README alone to a hit on one's own documents, and every wrong turn on the way."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from ragcache.cli.app import app
from tests.doubles.upstream import Reply

from .blocks import blocks

TARIFF = """Demurrage

The demurrage fee is 80 euros. It is due for each day after the free time in port, and it is
charged to the consignee by the terminal on the day after the container was collected.
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "documents"
    made.mkdir()
    (made / "tariff.md").write_text(TARIFF, encoding="utf-8")
    return made


def demo(*arguments: object, **env: str):
    runner = CliRunner(env={**env, "COLUMNS": "160", "NO_COLOR": "1"})
    return runner.invoke(app, ["demo", *map(str, arguments)])


def test_the_readme_needs_at_most_five_commands():
    first = next(block for block in blocks("README.md") if block.language == "bash")
    assert any("DOCS=" in command for command in first.commands())
    assert len(first.commands()) <= 5


@pytest.mark.prove
def test_a_folder_of_ones_own_reaches_a_hit(folder, upstream):
    upstream.script = lambda body: Reply(text="The demurrage fee is 80 euros.")
    ran = demo("--docs", folder, RAGCACHE_BASE_URL=upstream.base_url, RAGCACHE_API_KEY="k")
    assert ran.exit_code == 0, ran.output
    rows = dict(re.findall(r"│ ([a-z][a-z, ]+?) +│ +[\d-]+ │ +(\d+) │", ran.output))
    hits = [int(rows[f"answered from the cache, {kind}"]) for kind in ("exact", "semantic")]
    assert sum(hits) >= 1, ran.output
    assert int(rows["wrong hits"]) == 0
    assert len(upstream.bodies) == 2 * int(rows["requests"]) - sum(hits)


# --- wrong turns -------------------------------------------------------------------------------


def told(ran) -> str:
    assert ran.exit_code == 1, ran.output
    assert ran.exception is None or isinstance(ran.exception, SystemExit)
    return " ".join(ran.output.split())


def test_a_folder_that_is_not_there(tmp_path):
    said = told(demo("--docs", tmp_path / "nowhere"))
    assert "nowhere" in said
    assert "give one that exists" in said


def test_a_folder_without_documents(tmp_path):
    said = told(demo("--docs", tmp_path))
    assert "put files in it that end in .md" in said


def test_a_server_that_is_away(folder):
    said = told(demo("--docs", folder, RAGCACHE_BASE_URL="http://127.0.0.1:1/v1"))
    assert "cannot be reached" in said
    assert "unset it to start an engine here" in said


def test_a_wrong_key(folder, httpserver):
    httpserver.expect_request("/v1/models").respond_with_data("no", status=401)
    said = told(demo("--docs", folder, RAGCACHE_BASE_URL=httpserver.url_for("/v1")))
    assert "refuses the key: set RAGCACHE_API_KEY" in said


def test_a_wrong_model(folder, upstream):
    env = {"RAGCACHE_BASE_URL": upstream.base_url, "RAGCACHE_MODEL__NAME": "fakee"}
    said = told(demo("--docs", folder, **env))
    assert "has no model 'fakee'; it has fake" in said


def test_no_postgres(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    env = {
        "RAGCACHE_STORE__DSN": "postgresql://ragcache_app:x@127.0.0.1:1/none",
        "COLUMNS": "300",
        "NO_COLOR": "1",
    }
    ran = CliRunner(env=env).invoke(app, ["doctor"])
    assert ran.exit_code == 3
    first = ran.output.split("first:")[1]
    assert "start it, or correct store.dsn" in first
    assert "an embedded Postgres is started" in first
