"""The figures: what counts as what, and what is left unsaid where the engine is silent."""

from __future__ import annotations

import io
from datetime import date

import pytest
from rich.console import Console

from ragcache.demo.chain import Reply
from ragcache.demo.questions import Question
from ragcache.demo.report import show
from ragcache.demo.tally import Asked, compare
from ragcache.layout.rules import Price
from ragcache.types import ZERO_USAGE, Usage

PRICE = Price(
    provider="p",
    models=("m",),
    input=1.0,
    output=4.0,
    read=0.1,
    source="",
    checked=date(2026, 1, 2),
)


def asked(
    *,
    intent: str = "a",
    cached: int | None = 0,
    hit: str = "",
    written_for: str = "",
    ttft_s: float = 1.0,
) -> Asked:
    usage = ZERO_USAGE if hit else Usage(input_tokens=100, cached_tokens=cached, output_tokens=10)
    status = {"hit": hit or None, "status": "ragcache; hit" if hit else "ragcache; fwd=miss"}
    return Asked(
        question=Question(text="What?", kind="new", intent=intent),
        reply=Reply(text="That.", usage=usage, ttft_s=ttft_s, finish_reason="stop", status=status),
        written_for=written_for,
    )


def test_only_requests_that_both_sent_are_compared() -> None:
    plain = [asked(cached=0), asked(cached=96), asked(cached=20)]
    cached = [asked(cached=0), asked(hit="exact", written_for="a"), asked(cached=60)]
    figures = compare(plain, cached, price=PRICE)
    assert figures.both_sent == 2
    assert (figures.plain_computed, figures.cached_computed) == (180, 140)
    assert figures.computed_share == pytest.approx(140 / 180)


def test_an_answer_written_for_another_intent_is_a_wrong_hit() -> None:
    cached = [
        asked(intent="a", hit="semantic", written_for="b"),
        asked(intent="a", hit="exact", written_for="a"),
        asked(intent="a", hit="semantic", written_for=""),
    ]
    figures = compare([asked()] * 3, cached, price=PRICE)
    assert figures.cached.wrong_hits == 2
    assert (figures.cached.exact, figures.cached.semantic, figures.cached.by_model) == (1, 2, 0)


def test_first_token_times_are_told_apart_by_what_was_cached() -> None:
    cached = [
        asked(cached=5, ttft_s=3.0),
        asked(cached=30, ttft_s=2.0),
        asked(cached=90, ttft_s=0.5),
        asked(hit="exact", written_for="a", ttft_s=0.004),
        asked(hit="semantic", written_for="a", ttft_s=0.03),
    ]
    figures = compare([asked()] * 5, cached, price=PRICE).cached
    assert (figures.ttft_cold_s, figures.ttft_prefix_hit_s) == (3.0, 0.5)
    assert (figures.ttft_exact_s, figures.ttft_semantic_s) == (0.004, 0.03)


def test_cost_bills_cached_tokens_at_their_own_price_and_hits_at_none() -> None:
    figures = compare([asked(cached=50)], [asked(hit="exact", written_for="a")], price=PRICE)
    assert figures.plain.cost_usd == pytest.approx((50 * 1.0 + 50 * 0.1 + 10 * 4.0) / 1e6)
    assert figures.cached.cost_usd == 0


def test_an_engine_that_does_not_report_cached_tokens_gives_no_figure() -> None:
    figures = compare([asked(cached=None)], [asked(cached=0)], price=None)
    assert figures.plain.computed_tokens is None
    assert figures.computed_share is None
    assert figures.plain.cost_usd is None


def shown(plain: list[Asked], cached: list[Asked], price: Price | None = PRICE) -> str:
    console = Console(file=io.StringIO(), width=120)
    show(console, compare(plain, cached, price=price), cached, {"index": 4.2, "ask": 6.1}, price)
    return console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_the_report_shows_the_share_three_answers_and_the_time_of_each_part() -> None:
    cached = [
        asked(),
        asked(hit="exact", written_for="a", ttft_s=0.004),
        asked(hit="semantic", written_for="a"),
        asked(cached=80),
    ]
    text = shown([asked()] * 4, cached)
    assert "120 (60%)" in text
    assert text.count("Q: What?") == 3
    assert "4.0 ms" in text
    assert "index 4 s, ask 6 s; in all 10 s." in text


def test_the_report_says_so_where_nothing_is_reported() -> None:
    text = shown([asked(cached=None)], [asked(cached=None)], None)
    assert "not reported" in text
    assert "Cost saved" not in text
