"""The table, the examples and the times, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ..layout.rules import Price
from .tally import Asked, Comparison, Tally

_UNKNOWN = "not reported"
_EXAMPLE_CHARACTERS = 100


def show(
    console: Console,
    comparison: Comparison,
    asked: Sequence[Asked],
    times_s: Mapping[str, float],
    price: Price | None,
) -> None:
    """Print what the demonstration found."""
    console.print(table(comparison))
    for line in (*_remarks(comparison, price), "", *_examples(asked), "", *_times(times_s)):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def table(comparison: Comparison) -> Table:
    """Return the two chains side by side."""
    plain, cached = comparison.plain, comparison.cached
    drawn = Table(title="The same questions, asked of the same chain")
    drawn.add_column("")
    drawn.add_column("plain chain", justify="right")
    drawn.add_column("with ragcache", justify="right")
    for name, *values in _rows(plain, cached):
        drawn.add_row(name, *values)
    drawn.add_section()
    drawn.add_row(
        f"prompt tokens computed for the {comparison.both_sent} requests that both sent",
        _count(comparison.plain_computed),
        _count(comparison.cached_computed) + _share(comparison.computed_share),
    )
    return drawn


def _rows(plain: Tally, cached: Tally) -> list[tuple[str, str, str]]:
    def both(name: str, one: str, other: str) -> tuple[str, str, str]:
        return name, one, other

    return [
        both("requests", str(plain.requests), str(cached.requests)),
        both("answered from the cache, exact", "-", str(cached.exact)),
        both("answered from the cache, semantic", "-", str(cached.semantic)),
        both("answered by the model", str(plain.by_model), str(cached.by_model)),
        both("wrong hits", "-", str(cached.wrong_hits)),
        both(
            "prompt tokens computed", _count(plain.computed_tokens), _count(cached.computed_tokens)
        ),
        both(
            "prompt tokens from the engine's cache",
            _count(plain.cached_tokens),
            _count(cached.cached_tokens),
        ),
        both("output tokens", _count(plain.output_tokens), _count(cached.output_tokens)),
        both(
            "median time to first token, cold", _time(plain.ttft_cold_s), _time(cached.ttft_cold_s)
        ),
        both("  on a prefix hit", _time(plain.ttft_prefix_hit_s), _time(cached.ttft_prefix_hit_s)),
        both("  on an exact answer hit", "-", _time(cached.ttft_exact_s)),
        both("  on a semantic answer hit", "-", _time(cached.ttft_semantic_s)),
        both("cost at the price below", _money(plain.cost_usd), _money(cached.cost_usd)),
    ]


def _remarks(comparison: Comparison, price: Price | None) -> list[str]:
    plain, cached = comparison.plain, comparison.cached
    remarks = []
    if plain.computed_tokens is not None and cached.computed_tokens is not None:
        saved = plain.computed_tokens - cached.computed_tokens
        output = (plain.output_tokens or 0) - (cached.output_tokens or 0)
        remarks.append(f"Saved: {saved:,} prompt tokens computed, {output:,} output tokens.")
    if price is not None and plain.cost_usd and cached.cost_usd is not None:
        saving, read = 1 - cached.cost_usd / plain.cost_usd, price.read or price.input
        remarks.append(
            f"Cost saved: {saving:.0%}, if these tokens were billed like {price.models[0]} "
            f"(${price.input:.2f} per million prompt tokens, ${read:.2f} cached, "
            f"${price.output:.2f} output; {price.checked:%Y-%m-%d})."
        )
    not_stored = cached.by_model - cached.stored
    if not_stored:
        remarks.append(f"Answers not stored: {not_stored} (cut short, or refused by a check).")
    return remarks


def _examples(asked: Sequence[Asked]) -> list[str]:
    """Return an exact hit, a semantic one, and an answer of the model that reused a prefix."""
    chosen = [
        next((one for one in asked if one.hit == "exact"), None),
        next((one for one in asked if one.hit == "semantic"), None),
        next((one for one in asked if not one.hit and (one.cached_share or 0) > 0.5), None),
    ]
    return ["Three answers:", *(line for one in chosen if one for line in _example(one))]


def _example(one: Asked) -> list[str]:
    cached = one.reply.usage.cached_tokens
    reused = f"; {cached} prompt tokens reused" if cached and not one.hit else ""
    text = " ".join(one.reply.text.split())[:_EXAMPLE_CHARACTERS]
    status = f"{one.reply.status.get('status', '')}{reused}"
    first = f"first token after {_time(one.reply.ttft_s)}"
    return [f"  Q: {one.question.text}", f"  A: {text}", f"     {status}; {first}"]


def _times(times_s: Mapping[str, float]) -> list[str]:
    parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in times_s.items())
    return [f"Time: {parts}; in all {sum(times_s.values()):.0f} s."]


def _count(count: int | None) -> str:
    return _UNKNOWN if count is None else f"{count:,}"


def _share(share: float | None) -> str:
    return "" if share is None else f" ({share:.0%})"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:,.1f} ms" if seconds < 0.1 else f"{seconds * 1000:,.0f} ms"


def _money(usd: float | None) -> str:
    return _UNKNOWN if usd is None else f"${usd:.5f}"
