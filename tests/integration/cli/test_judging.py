"""lint, diff and calibrate, as an operator types them."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ragcache import factory
from ragcache.bench.rewording import paraphrases, traps
from ragcache.settings import Settings
from ragcache.store.traffic import TrafficWriter, Verdict
from ragcache.telemetry import savings
from ragcache.telemetry.record import assemble
from ragcache.telemetry.recorder import row_of
from tests.doubles.embedder import TableEmbedder
from tests.unit.telemetry.samples import of_hit

CLOCK = """from datetime import datetime
SYSTEM = f"Answer from the documents only, today is {datetime.now()} and you are polite."
messages = [{"role": "system", "content": SYSTEM}]
"""


def request(system: str) -> dict:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "What is it?"}]
    return {"model": "gpt-4o", "messages": messages}


# --- lint and diff -----------------------------------------------------------------------------


def test_lint_finds_a_clock_in_source_and_fails(bare_cli):
    Path("chain.py").write_text(CLOCK)
    ran = bare_cli("lint", "chain.py", code=1)
    assert "chain.py:2" in ran.out
    found = bare_cli("lint", ".", "--json", code=1).json["findings"]
    assert {f["severity"] for f in found} >= {"error"}
    assert set(found[0]) == {
        "rule",
        "severity",
        "path",
        "line",
        "column",
        "message",
        "detail",
        "remedy",
    }


def test_lint_is_content_with_source_that_is_stable(bare_cli):
    Path("chain.py").write_text('SYSTEM = "Answer from the documents only."\n')
    assert "no findings" in bare_cli("lint", "chain.py").out


def test_lint_and_diff_of_recorded_requests_show_where_they_differ_and_not_the_values(bare_cli):
    stable = "You answer questions about the port of Rotterdam from the documents below. " * 4
    bodies = [request(f"It is {hour}:00 now. {stable}") for hour in ("10", "11", "12")]
    Path("log.jsonl").write_text("\n".join(json.dumps(b) for b in bodies))
    ran = bare_cli("lint", "--log", "log.jsonl")
    assert "log.jsonl" in ran.out
    assert stable not in ran.out
    for name, body in zip(("a.json", "b.json"), bodies, strict=False):
        Path(name).write_text(json.dumps(body))
    told = bare_cli("diff", "a.json", "b.json").out
    assert "first difference: system" in told
    assert "^" in told
    assert (
        bare_cli("diff", "a.json", "b.json", "--json").json["difference"]["part"]
        == "system message"
    )
    assert bare_cli("diff", "a.json", "a.json", "--json").json["difference"] is None


@pytest.mark.parametrize(
    "arguments", [("lint", "nowhere.py"), ("lint", "--log", "nowhere.jsonl"), ("diff", "a", "b")]
)
def test_a_missing_file_is_named(bare_cli, arguments):
    ran = bare_cli(*arguments, code=1)
    assert "Traceback" not in ran.err
    assert arguments[-1].removeprefix("--")[0] in ran.err


def test_lint_of_nothing_is_a_usage_error(bare_cli):
    assert "--log" in bare_cli("lint", code=2).err


# --- calibrate ---------------------------------------------------------------------------------


@pytest.fixture
def paired(monkeypatch):
    """Pairs whose similarity is known: right ones above 0.9, wrong ones below."""
    table = TableEmbedder()
    lines = []
    for number in range(12):
        same = number % 2 == 0
        one = f"What does item number {number} cost?"
        other = f"What does item number {number} cost then?"
        table.place(one, 1.0)
        table.place(other, 0.97 if same else 0.85)
        lines.append(json.dumps({"a": one, "b": other, "same": same}))
    Path("pairs.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(factory, "embedder_from", lambda settings: table)


def test_calibrate_prints_a_threshold_with_its_bound_and_draws_the_curve(bare_cli, paired):
    ran = bare_cli("calibrate", "pairs.jsonl", "--plot", "c.png", "--curve", "c.json")
    assert "not certified" in ran.out
    assert "[lookup]" in ran.out
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(Path("c.json").read_text())["curve"]
    found = bare_cli("calibrate", "pairs.jsonl", "--plot", "c.svg", "--json").json
    assert set(found) == {"threshold", "certified", "error", "per", "chosen", "curve", "parts"}
    assert [(p["namespace"], p["language"]) for p in found["parts"]] == [("", "en")]
    assert "<svg xmlns" in Path("c.svg").read_text()
    assert ".gif" in bare_cli("calibrate", "pairs.jsonl", "--plot", "c.gif", code=1).err


def test_calibrate_gives_each_namespace_and_language_its_settings(bare_cli, paired):
    lines = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    rows = [{**row, "namespace": "faq" if at % 4 < 2 else "shop"} for at, row in enumerate(lines)]
    rows += [
        {"a": f"第{n}号商品多少钱？", "b": f"第{n}号商品多少钱", "same": True} for n in range(9)
    ]
    Path("parts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ran = bare_cli("calibrate", "parts.jsonl")
    written = ran.out.split("in the settings:")[1]
    found = tomllib.loads(written)["lookup"]
    assert set(found["namespaces"]) == {"faq", "shop"}
    assert found["namespaces"]["faq"]["languages"]["en"]["threshold"] == pytest.approx(
        0.97, abs=1e-3
    )
    Path("ragcache.toml").write_text(written)
    policies = factory._policies(Settings.load("ragcache.toml"))
    assert policies.lookup_of("faq", "en").threshold == pytest.approx(0.97, abs=1e-3)
    assert policies.lookup_of("elsewhere", "de") is policies.lookup


def test_calibrate_fits_a_second_opinion_that_the_settings_can_name(bare_cli, paired):
    pairs = [*traps(160, seed=1), *paraphrases(160, seed=1)]
    rows = [{"a": p.stored, "b": p.asked, "same": p.same} for p in pairs]
    Path("many.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ran = bare_cli("calibrate", "many.jsonl", "--fit", "verifier.json", "--error", "0.05")
    Path("ragcache.toml").write_text(ran.out.split("in the settings:")[1])
    settings = Settings.load("ragcache.toml")
    verifier = factory.verifier_from(settings, TableEmbedder())
    assert verifier.id == "fitted:verifier.json"
    assert 0.0 < settings.verifier.threshold < 1.0
    bare_cli("calibrate", "--from-traffic", "--fit", "verifier.json", code=2)


@pytest.fixture
def judged(postgres, tenant):
    writer = TrafficWriter(postgres.app)
    now = datetime.now(UTC)
    rows, verdicts = [], []
    for number in range(20):
        row = row_of(assemble(of_hit(tenant, f"h{number}"), at=now, prices=savings.prices_of()))
        rows.append(row | {"similarity": 0.80 + number / 100})
        verdicts.append(
            Verdict(
                id=f"h{number}",
                entry="",
                agreed=number >= 5,
                by="verification",
                at=now,
                namespace="n",
                model="m",
                version="",
            )
        )
    writer.write(tenant, rows, verdicts)
    writer.close()
    return tenant


def test_calibrate_from_traffic_uses_judged_hits(cli, judged):
    wanted = ("--from-traffic", "--error", "0.3", "--per", "hits")
    found = cli("calibrate", *wanted, "--tenant", judged, "--json").json
    assert found["threshold"] <= 0.85
    assert found["chosen"]["wrong_hits"] <= 0.3


def test_two_thresholds_are_compared_on_the_same_hits(cli, judged):
    found = cli("calibrate", "--ab", 0.80, 0.85, "--tenant", judged, "--json").json
    assert (found["judged"], found["first"]["served"], found["second"]["served"]) == (20, 20, 15)
    assert found["difference"] == -0.25
    assert found["low"] < -0.25 < found["high"]
    assert "difference" in cli("calibrate", "--ab", 0.80, 0.85, "--tenant", judged).out


def test_calibrate_without_anything_judged_says_where_verdicts_come_from(cli, tenant):
    ran = cli("calibrate", "--from-traffic", "--tenant", tenant, code=1)
    assert "verifies a share" in ran.err
    assert cli("calibrate", code=2).err
