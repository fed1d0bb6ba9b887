"""Dashboard and alerts on a real Prometheus that scrapes a real run."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server

from ragcache.events import Degraded, Hooks, Judged
from ragcache.store.reports import stats
from ragcache.telemetry import savings, semconv
from ragcache.telemetry.prometheus import PrometheusHook
from ragcache.types import Document, Reject, Request
from tests.doubles.upstream import Reply
from tests.store_samples import NOW
from tests.unit.telemetry.samples import SPARED, of_miss

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "observability"
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
EXPRESSIONS = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel["targets"]
]
PRICES = savings.prices_of({"fake": {"input": 2.0, "read": 0.5, "output": 8.0}})
DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """A Prometheus that scrapes one target twice a second."""

    def __init__(self, folder: Path, target: int) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        shutil.copy(FOLDER / "alerts.yml", folder / "alerts.yml")
        text = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
        text = text.replace("9464", str(target)).replace(": 5s", ": 500ms").replace(": 15s", ": 1s")
        (folder / "prometheus.yml").write_text(text, encoding="utf-8")
        command = shutil.which("prometheus")
        assert command, "no prometheus: apt-get install prometheus (requirements/debian.txt)"
        self.process = subprocess.Popen(
            [
                command,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def query(self, expression: str) -> list[Any]:
        response = httpx.get(f"{self.url}/api/v1/query", params={"query": expression})
        if response.status_code == 503:  # listens, and is not ready yet
            return []
        answer = response.json()
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])

    def wait_for(self, expression: str, *, seconds: float = 60) -> list[Any]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if found := self.query(expression):
                    return found
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise AssertionError(f"nothing for {expression}")


@pytest.fixture
def scraped(tmp_path):
    """A registry that a Prometheus scrapes."""
    registry = CollectorRegistry()
    port = free_port()
    httpd, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    server = Server(tmp_path, port)
    try:
        yield registry, server
    finally:
        server.process.terminate()
        server.process.wait(timeout=20)
        httpd.shutdown()
        httpd.server_close()
        thread.join(timeout=10)


async def use(make, hooks, tenant, upstream, round_: int) -> None:
    """Miss, hit by key, hit by meaning, miss for a reason."""
    upstream.answer(
        Reply(
            usage={
                "prompt_tokens": 900,
                "completion_tokens": 20,
                "total_tokens": 920,
                "prompt_tokens_details": {"cached_tokens": 600},
            }
        )
    )
    pipeline = await make(hooks=hooks)
    for question in ("What is the fee?", "What is the fee?", "What's the fee?", "Who pays it?"):
        asked = Request(tenant=f"{tenant}-{round_}", question=question, documents=DOCUMENTS)
        await pipeline.answer(asked)
    await pipeline.close()


def rare(hooks: Hooks) -> None:
    """What a short run does not bring about by itself."""
    looked, laid, called, admitted, _ = of_miss()
    place = {"request_id": "r", "scope": looked.scope}
    hooks.emit(laid)
    hooks.emit(called)
    hooks.emit(Degraded(part="store", reason="timeout", **place))
    for agreed in (True, False):
        for by in ("verification", "feedback"):
            judged = Judged(entry="e", similarity=0.9, agreed=agreed, by=by, usage=SPARED, **place)
            hooks.emit(judged)
    refused = type(admitted)(verdict=Reject(check="grounding"), stored=False, **place)
    hooks.emit(refused)


@pytest.mark.timeout(180)
async def test_every_expression_shows_something_after_a_real_run(
    scraped, make, postgres, table, tenant, upstream
):
    registry, server = scraped

    def broken(event):
        raise RuntimeError("somebody's hook")

    hooks = Hooks(broken)
    hook = PrometheusHook(registry, prices=PRICES, hooks=hooks)
    hooks.add(hook)
    table.place("What is the fee?", 1.0)
    table.place("What's the fee?", 0.99)
    for round_ in range(3):  # a rate needs two scrapes between which something happened
        await use(make, hooks, tenant, upstream, round_)
        rare(hooks)
        held = stats(postgres.ops, now=NOW, tenant=f"{tenant}-0").namespaces
        hook.entries({"live": sum(n.live for n in held), "quarantined": 0})
        seen = registry.get_sample_value("ragcache_collapsed_total")
        server.wait_for(f"ragcache_collapsed_total == {seen} and changes(up[1s]) >= 0")
        time.sleep(1.2)
    empty = [
        (title, expression)
        for title, expression in EXPRESSIONS
        if not server.query(filled(expression))
    ]
    assert empty == []
    (hit_rate,) = server.query(filled(EXPRESSIONS[1][1]))
    assert 0 < float(hit_rate["value"][1]) < 1


def filled(expression: str) -> str:
    """Put in what Grafana puts in."""
    return expression.replace("$__rate_interval", "1m").replace("$__range", "1h")


def test_alerts_are_loaded_and_healthy(scraped):
    _, server = scraped
    server.wait_for("up")
    rules = httpx.get(f"{server.url}/api/v1/rules").json()["data"]["groups"][0]["rules"]
    deadline = time.monotonic() + 30
    while any(rule["health"] == "unknown" for rule in rules) and time.monotonic() < deadline:
        time.sleep(0.3)
        rules = httpx.get(f"{server.url}/api/v1/rules").json()["data"]["groups"][0]["rules"]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert len(rules) == 7


#: What makes each alert fire: series, their values by the minute, and when it fires.
FIRING = {
    "RagcacheBadHits": {
        'ragcache_judged_total{agreed="no",by="verification"}': "0+1x400",
        'ragcache_judged_total{agreed="yes",by="verification"}': "0+9x400",
    },
    "RagcacheSemanticHitsOff": {
        'ragcache_degraded_total{part="guard",reason="off"}': "0x390 1x10",
    },
    "RagcacheStoreFails": {
        'ragcache_degraded_total{part="store",reason="timeout"}': "0+20x400",
        'ragcache_requests_total{status="miss"}': "0+100x400",
    },
    "RagcachePrefixRateFell": {
        'ragcache_tokens_total{kind="cached"}': "0+80x320 25600x80",
        'ragcache_tokens_total{kind="prompt"}': "0+100x400",
    },
    "RagcachePrefixUnexplained": {
        'ragcache_lost_reuse_total{cause="unexpected_miss"}': "0x390 100x10",
    },
    "RagcacheLosesMoney": {
        'ragcache_cost_usd_total{kind="uncached"}': "0+1x400",
        'ragcache_cost_usd_total{kind="spent"}': "0+1.2x400",
    },
    "RagcacheHooksFail": {"ragcache_hook_errors_total": "0x390 1x10"},
}


@pytest.mark.parametrize("alert", sorted(FIRING))
def test_an_alert_fires_on_what_it_is_for_and_no_other_does(alert, tmp_path):
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]
    names = [rule["alert"] for rule in rules["rules"]]
    assert sorted(names) == sorted(FIRING)
    shutil.copy(FOLDER / "alerts.yml", tmp_path / "alerts.yml")
    case = {
        "interval": "1m",
        "input_series": [{"series": s, "values": v} for s, v in FIRING[alert].items()],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertname="{name}",alertstate="firing"}})',
                "eval_time": "400m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}]
                if name == alert
                else [],
            }
            for name in names
        ],
    }
    tests = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(tests), encoding="utf-8")
    ran = subprocess.run(
        ["promtool", "test", "rules", "test.yml"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "TZ": "UTC"},
        timeout=60,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_dashboard_names_only_metrics_of_the_table_and_is_small():
    known = {m.prometheus for m in semconv.METRICS}
    known |= {f"{m.prometheus}_bucket" for m in semconv.METRICS if m.kind == "histogram"}
    text = json.dumps(DASHBOARD) + (FOLDER / "alerts.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"\bragcache_[a-z_]+\b", text))
    assert used <= known
    assert len(used) >= 12
    assert len(DASHBOARD["panels"]) <= 12
