"""What the report gathers, and what its plots are made of."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from ragcache.telemetry.figures import Figures
from ragcache.telemetry.report import gathered, page, scenarios, svg
from ragcache.telemetry.report.data import documents_by_reuse, prefix_tree, similarity_bins
from ragcache.telemetry.report.scenarios import PUBLISHED, expected_share
from ragcache.telemetry.report.svg import Bin, Line, Node, Step

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def asked(status="miss", nearest=None, agreed=None, blocks=(), reason="no_candidate"):
    return {
        "status": status,
        "nearest": nearest,
        "agreed": agreed,
        "blocks": [[b, 400, f"{b}.pdf"] for b in blocks],
        "reason": reason,
        "predicted": 100,
        "cached": 40,
        "cause": "evicted",
        "seconds": {"target": 1.0},
    }


RECENT = [
    asked(blocks="abc", nearest=0.7),
    asked(blocks="abd"),
    asked("hit_semantic", nearest=0.95),
    asked("hit_semantic", nearest=0.93, agreed=False),
    asked("hit_exact", nearest=1.0),
]


def hour(at="2026-05-01T10:00:00+00:00", **sums):
    return asdict(Figures(**sums)) | {
        "hour": at,
        "tenant": "acme",
        "model": "m",
        "version": "",
    }


HOURS = [
    hour(requests=4, hits_semantic=2, calls=2, input=200, cached=80, spent=1.0, uncached=1.2),
    hour("2026-05-01T11:00:00+00:00", requests=1, hits_exact=1, spared=0.6, lost=0.1),
]


def data(hours=HOURS, recent=RECENT, **fields):
    return gathered(
        title="all tenants", now=NOW, hours=hours, recent=recent, threshold=0.9, **fields
    )


def parsed(drawing):
    return ET.fromstring(drawing)


# --- gathering ---------------------------------------------------------------------------------


def test_similarities_are_counted_as_served_not_served_and_bad():
    bins = similarity_bins(RECENT)
    sums = {}
    for one in bins:
        for colour, count in one.parts:
            sums[colour] = sums.get(colour, 0) + count
    assert sums == {"bad": 1, "good": 1, "muted": 1}


def test_prompts_that_begin_alike_share_their_nodes():
    root = prefix_tree(RECENT)
    (a,) = root.children
    (b,) = a.children
    assert (a.name, b.name) == ("a.pdf", "b.pdf")
    assert sorted(child.name for child in b.children) == ["c.pdf", "d.pdf"]
    assert (a.tokens, b.tokens, b.children[0].tokens) == (600, 400, 100)


def test_a_tree_with_very_many_branches_is_pruned_and_nothing_is_lost():
    root = prefix_tree([asked(blocks=[f"{n}"]) for n in range(500)])
    assert len(root.children) == 13
    assert sum(child.tokens for child in root.children) == 500 * 100


def test_documents_are_reusable_where_all_before_them_stood_before():
    reused = {d.name: (d.prompts, d.reusable) for d in documents_by_reuse(RECENT)}
    assert reused == {"a.pdf": (2, 1), "b.pdf": (2, 1), "c.pdf": (1, 0), "d.pdf": (1, 0)}


# --- scenarios ---------------------------------------------------------------------------------


def test_the_rule_fits_all_published_rows():
    for row in PUBLISHED:
        share = expected_share(row.prefix_hit_rate, row.semantic_hit_rate)
        assert share == pytest.approx(row.saved_share, abs=0.02)


def test_own_traffic_stands_beside_the_published_rows_priced_where_prices_are_known():
    *published, alone, both = scenarios(data().whole)
    assert len(published) == 4
    assert (alone.basis, round(alone.saved_share, 6)) == ("priced", round(0.2 / 1.2, 6))
    assert (both.basis, round(both.saved_share, 6)) == ("priced", round(0.7 / 1.8, 6))
    unpriced = Figures(requests=10, hits_semantic=4, input=100, cached=50, unpriced=10)
    *_, alone, both = scenarios(unpriced)
    assert (alone.basis, alone.saved_share) == ("estimated", 0.275)
    assert both.saved_share == pytest.approx(0.4 + 0.6 * 0.5 * 0.55)
    assert scenarios(Figures())[-1].saved_share is None


# --- plots -------------------------------------------------------------------------------------


def rectangles(drawing):
    return [
        {k: float(r.get(k)) for k in ("x", "y", "width", "height")}
        for r in parsed(drawing).iter("rect")
    ]


def test_a_bar_of_the_histogram_is_as_tall_as_its_count():
    bins = [
        Bin(low=0.8, high=0.9, parts=(("muted", 10),)),
        Bin(low=0.9, high=1.0, parts=(("bad", 5), ("good", 5))),
    ]
    whole, bad, good = rectangles(svg.histogram("h", bins, mark=0.85))
    assert bad["height"] == good["height"] == pytest.approx(whole["height"] / 2, abs=0.1)
    assert good["y"] == pytest.approx(bad["y"] - good["height"], abs=0.1)


def test_the_waterfall_ends_where_its_steps_lead():
    steps = [
        Step(name="bill", amount=10, total=True),
        Step(name="saved", amount=-4),
        Step(name="paid", amount=6, total=True),
    ]
    bill, saved, paid = rectangles(svg.waterfall("w", steps))
    assert paid["width"] == pytest.approx(bill["width"] * 0.6, rel=0.01)
    assert saved["x"] == pytest.approx(paid["x"] + paid["width"], abs=0.2)


def test_a_waterfall_below_zero_stays_inside_the_picture():
    steps = [Step(name="bill", amount=1, total=True), Step(name="saved", amount=-3)]
    for one in rectangles(svg.waterfall("w", steps)):
        assert one["x"] >= 0
        assert one["x"] + one["width"] <= svg.WIDTH


def test_gaps_stay_gaps_in_a_curve():
    curve = Line(name="c", colour="a", values=[0.1, None, 0.3])
    (path,) = parsed(svg.lines("l", ["1", "2", "3"], [curve])).iter("path")
    assert path.get("d").count("M") == 2
    alone = Line(name="c", colour="a", values=[0.5])
    assert len(list(parsed(svg.lines("l", ["1"], [alone])).iter("circle"))) == 1


def test_children_of_the_icicle_lie_below_their_parent_and_inside_it():
    leaf = Node(name="b", tokens=25)
    root = Node(name="a", tokens=100, children=[leaf, Node(name="c", tokens=50)])
    parent, first, second = rectangles(svg.icicle("i", root))
    assert first["y"] == second["y"] > parent["y"]
    assert second["x"] == pytest.approx(svg.WIDTH / 4)
    assert second["x"] + second["width"] <= parent["x"] + parent["width"]


# --- the page ----------------------------------------------------------------------------------


def test_the_page_stands_alone_and_has_no_script():
    text = page(data(quarantined=[("acme / default", 3)]))
    assert not re.search(r"<script|javascript:|https?://|@import|url\(", text)
    assert "default-src 'none'" in text
    for word in ("40.0%", "threshold 0.90", "acme / default", "$0.7000", "not near"[:3]):
        assert word in text


def test_names_from_outside_cannot_become_markup():
    evil = "<img src=x onerror=alert(1)>\"'&"
    rows = [hour(requests=1) | {"tenant": evil}]
    recent = [{**asked(), "blocks": [["h", 4, evil]], "reason": evil}]
    text = page(data(hours=rows, recent=recent, quarantined=[(evil, 1)]))
    assert "<img" not in text
    assert "&lt;img" in text


def test_a_page_of_nothing_is_a_page():
    text = page(data(hours=[], recent=[]))
    assert "unknown" in text
    for drawing in re.findall(r"<svg.*?</svg>", text):
        parsed(drawing)
