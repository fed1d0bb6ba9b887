"""What the benches print, so that a script or a person can read it."""

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


def printed(*words: str) -> str:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return result.stdout


def ran(*words: str) -> object:
    return json.loads(printed(*words, "--json"))


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


def test_layout_tells_what_an_engine_of_whole_kv_blocks_computes(tmp_path: Path) -> None:
    docs, trace = tmp_path / "docs.jsonl", tmp_path / "trace.jsonl"
    texts = [{"id": n, "text": f"text {n} " * 20} for n in range(3)]
    docs.write_text("\n".join(map(json.dumps, texts)))
    trace.write_text("\n".join(json.dumps({"query": "q", "ids": [0, 1, 2]}) for _ in range(2)))
    asked = ("bench", "layout", "--docs", str(docs), "--trace", str(trace))
    shares = set()
    for size in ("1", "16", "100"):
        told = ran(*asked, "--block-size", size)
        assert isinstance(told, dict)
        lines = printed(*asked, "--block-size", size).splitlines()
        assert f"computed by engine  {told['computed']:.4f}" in lines
        shares.add(told["computed"])
    assert min(shares) == 0.5, "all of the first request, nothing of the second"
    assert len(shares) == 3, "the size of a KV block changes nothing"
    assert "computed" not in printed(*asked)


def test_each_cost_stands_apart_from_its_provider(tmp_path: Path) -> None:
    docs, trace = tmp_path / "docs.jsonl", tmp_path / "trace.jsonl"
    docs.write_text('{"id": 0, "text": "a text"}')
    trace.write_text('{"query": "q", "ids": [0]}')
    shown = printed("bench", "layout", "--docs", str(docs), "--trace", str(trace))
    _, _, costs = shown.partition("relative input cost\n")
    rows = [line.split() for line in costs.splitlines()]
    assert len(rows) > 10
    assert all(len(row) == 2 and float(row[1]) <= 1.002 for row in rows)
