"""The report as a person sees it: in a browser, on a phone and a desk, in light and dark."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ragcache.store.traffic import TrafficWriter, Verdict
from ragcache.telemetry import savings
from ragcache.telemetry.record import assemble
from ragcache.telemetry.recorder import row_of
from ragcache.types import Document
from tests.unit.telemetry.samples import SECRET, of_hit, of_miss

PRICES = savings.prices_of({"m": {"input": 2.0, "read": 0.5, "output": 8.0}})


@pytest.fixture
def traffic_of_a_day(postgres, tenant):
    """Two hundred requests of a day over thirty documents, some hits of them bad."""
    writer = TrafficWriter(postgres.app)
    draw = random.Random(7)
    now = datetime.now(UTC)
    for hour in range(10):
        at = now - timedelta(hours=10 - hour)
        rows = []
        for number in range(20):
            id_ = f"{tenant}-{hour}-{number}"
            events = (
                of_hit(tenant, id_) if draw.random() < 0.3 + hour / 40 else of_miss(tenant, id_)
            )
            if len(events) > 2:
                events[1] = replace(events[1], layout=prompt(events[1].layout, draw))
            looked = events[0]
            nearest = min(0.999, max(0.5, draw.gauss(0.95 if len(events) == 2 else 0.75, 0.06)))
            field = "similarity" if len(events) == 2 else "nearest"
            events[0] = replace(looked, outcome=replace(looked.outcome, **{field: nearest}))
            if len(events) == 2:
                answer = events[1].answer
                status = replace(answer.status, similarity=nearest)
                events[1] = replace(events[1], answer=replace(answer, status=status))
            rows.append(row_of(assemble(events, at=at, prices=PRICES)))
        writer.write(tenant, rows)
        hits = [row for row in rows if row["status"] == "hit_semantic"]
        verdicts = [
            Verdict(
                id=row["id"],
                entry="",
                agreed=draw.random() > 0.1,
                by="verification",
                at=at,
                namespace="default",
                model="m",
                version="v1",
                verification=0.0005,
            )
            for row in hits
        ]
        writer.write(tenant, (), verdicts)
    writer.close()
    return tenant


def prompt(layout, draw):
    """Six of thirty documents, the popular ones first."""
    (block,) = layout.blocks
    chosen = sorted({min(29, int(draw.expovariate(0.15))) for _ in range(8)})[:6]
    blocks = tuple(
        replace(
            block,
            hash=f"{n:02d}" * 32,
            text="x" * (300 + 40 * n),
            documents=(Document(text="", source=f"handbook/chapter-{n:02d}.md"),),
        )
        for n in chosen
    )
    return replace(layout, blocks=blocks)


SIZES = {
    "wider": "document.documentElement.scrollWidth - document.documentElement.clientWidth",
    "plots": "document.querySelectorAll('svg').length",
    "smallest": "Math.min(...[...document.querySelectorAll('svg text')]"
    ".map(t => t.getBoundingClientRect().height))",
    "background": "getComputedStyle(document.body).backgroundColor",
    "ink": "getComputedStyle(document.body).color",
    "outside": "[...document.querySelectorAll('svg')].filter(s => [...s.querySelectorAll('text')]"
    ".some(t => t.getBoundingClientRect().right > s.getBoundingClientRect().right + 1 ||"
    " t.getBoundingClientRect().left < s.getBoundingClientRect().left - 1)).length",
}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280], ids=["phone", "desk"])
def test_the_page_reads_well_and_asks_for_nothing(cli, traffic_of_a_day, browser, width, dark):
    told = cli("report", "--tenant", traffic_of_a_day, "--html", "report.html").out
    assert "200 requests" in told
    page = Path("report.html")
    assert SECRET not in page.read_text()
    looked = browser.look(page, width=width, dark=dark, values=SIZES)
    if folder := os.environ.get("RAGCACHE_PICTURES"):
        (Path(folder) / f"report-{width}-{'dark' if dark else 'light'}.png").write_bytes(
            looked.picture
        )
    assert looked.complaints == []
    outside = [u for u in looked.requests if not u.startswith(("file:", "data:"))]
    assert outside == []
    assert looked.values["wider"] <= 0
    assert looked.values["plots"] == 5
    assert looked.values["outside"] == 0
    assert looked.values["smallest"] >= 9
    assert contrast(looked.values["background"], looked.values["ink"]) > 7
    assert luminance(looked.values["background"]) < 0.1 if dark else 0.9
    assert len(looked.picture) > 20_000


def test_a_page_that_would_ask_for_something_is_noticed(browser, tmp_path):
    """The control: the browser does tell of a request and of a complaint."""
    page = tmp_path / "bad.html"
    page.write_text("<script src='http://example.test/x.js'></script><script>nope()</script>")
    looked = browser.look(page, width=360)
    assert any("example.test" in url for url in looked.requests)
    assert looked.complaints


def test_the_report_has_a_stable_schema(cli, traffic_of_a_day):
    found = cli("report", "--tenant", traffic_of_a_day, "--json").json
    assert set(found) == {
        "title",
        "figures",
        "hours",
        "documents",
        "misses",
        "lost_prefix",
        "quarantined",
        "threshold",
        "scenarios",
    }
    assert found["figures"]["requests"] == 200
    assert sum(part["requests"] for part in found["hours"].values()) == 200


def test_scenarios_put_own_traffic_beside_the_published_rows(cli, traffic_of_a_day):
    rows = cli("report", "--tenant", traffic_of_a_day, "--scenarios", "--json").json["scenarios"]
    assert [row["basis"] for row in rows] == ["published"] * 4 + ["priced"] * 2
    assert rows[1]["prefix_hit_rate"] == 0.7
    shown = cli("report", "--tenant", traffic_of_a_day, "--scenarios").out
    assert "your traffic, both caches" in shown


def test_a_place_that_cannot_be_written_is_named(cli, tenant):
    assert "nowhere/report.html" in cli("report", "--html", "nowhere/report.html", code=1).err


def luminance(colour: str) -> float:
    parts = [int(c) / 255 for c in colour.removeprefix("rgb(").rstrip(")").split(",")]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)
