"""What the benches of the answer cache print, so that a script can read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ragcache.cli import bench
from ragcache.cli.app import app
from tests.doubles.embedder import TableEmbedder

FIELDS = {
    *("pairs", "same", "different", "served_same", "served_different", "wrong_all", "wrong_hits"),
    *("by_kind", "threshold", "ms", "wrong_all_upper", "wrong_hits_upper", "certified"),
}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_embedder", lambda _name: TableEmbedder())


def ran(*words: str) -> object:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    "rows",
    [
        [{"a": "What is it?", "b": "what is it", "same": True}],
        [{"cached": "What is it?", "query": "what is it", "reuse": True, "category": "x"}],
    ],
)
def test_answers_reads_either_shape_and_prints_its_fields(
    rows: list[dict[str, object]], tmp_path: Path, table: None
) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = ran("bench", "answers", "--pairs", str(path))
    assert isinstance(found, dict)
    assert found.keys() >= FIELDS
    assert (found["pairs"], found["same"], found["different"]) == (1, 1, 0)
    assert found["ms"].keys() == {"p50", "p95", "p99", "mean"}
    sweep = ran("bench", "answers", "--pairs", str(path), "--sweep")
    assert isinstance(sweep, list)
    assert len({row["threshold"] for row in sweep}) == len(sweep) > 50


def test_stream_prints_the_same_fields_and_those_of_the_guard(tmp_path: Path, table: None) -> None:
    rows = [{"text": f"What is number {n % 3}?", "label": f"n{n % 3}"} for n in range(9)]
    path = tmp_path / "stream.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = ran("bench", "stream", "--file", str(path))
    assert isinstance(found, dict)
    assert found.keys() >= FIELDS | {"lookups", "hits", "held", "kept", "guard"}
    assert (found["pairs"], found["same"], found["different"]) == (9, 6, 3)
    assert found["served_same"] == 6
    assert found["by_kind"]["n0"] == {"pairs": 3, "served": 2}
    assert found["certified"] == "not certified"
