"""The page: figures, plots and tables as one HTML document without scripts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from ..figures import Figures
from ..reasons import FORWARD, LOST_PREFIX, Reason
from . import svg
from .data import ReportData
from .scenarios import Scenario, scenarios
from .svg import Line, Step


def page(data: ReportData) -> str:
    """Return the whole document; it asks for nothing outside itself."""
    style = (files(__package__) / "page.css").read_text("utf-8")
    sections = "".join(_sections(data))
    made = data.made_at.isoformat(sep=" ", timespec="minutes")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'; img-src data:\">"
        '<link rel="icon" href="data:,">'
        f"<title>ragcache: {escape(data.title)}</title><style>{style}</style></head>"
        f"<body><header><h1>ragcache</h1><p>{escape(data.title)}, read {made}</p></header>"
        f"<main>{sections}</main></body></html>\n"
    )


def _sections(data: ReportData) -> Iterable[str]:
    yield _cards(data.whole)
    yield _plot("Hit rates over time", _rates(data), _legend(_CURVES))
    yield _plot(
        "Nearest stored question",
        svg.histogram("similarities", data.bins, mark=data.threshold),
        _legend((("muted", "not served"), ("good", "served"), ("bad", "served, found bad"))),
    )
    yield _plot("From the bill without caches to the one paid", _savings(data.whole), "")
    yield _plot(
        "Prefix tree of the latest prompts",
        svg.icicle("prefix tree", data.tree),
        "<p>A block is as wide as the tokens that went through it. What stands under one wide "
        "block shares its prefix.</p>",
    )
    yield _plot("Documents by reuse", _documents(data), "")
    yield _table("Why requests went forward", ("reason", "requests"), _why(data.misses, FORWARD))
    yield _table("Why prefixes were lost", ("cause", "tokens"), _why(data.lost, LOST_PREFIX))
    yield _table("Entries in quarantine", ("where", "entries"), [*data.quarantined])
    yield _table(
        "By tenant, model and version",
        ("", "", "requests", "hits", "prefix hits", "saved"),
        [_group(what, name, part) for (what, name), part in data.groups.items()],
    )
    yield _table(
        "Beside published workloads",
        ("workload", "prefix hits", "semantic hits", "cost saved", ""),
        [_scenario(row) for row in scenarios(data.whole)],
    )


# --- figures -----------------------------------------------------------------------------------


def _cards(whole: Figures) -> str:
    bound = _bounds(whole) if whole.judged else "none judged yet: not certified"
    ttft = whole.ttft_saved_s
    cards = (
        ("Prefix hit rate", _share(whole.prefix_hit_rate), f"{whole.cached:,} tokens reused"),
        ("Semantic hit rate", _share(whole.semantic_hit_rate), f"{whole.hits_exact:,} exact hits"),
        ("Bad-hit rate", _share(whole.wrong_of_judged), bound),
        (
            "First token sooner",
            "unknown" if ttft is None else f"{ttft:.2f} s",
            "a hit against a call",
        ),
        ("Saved", _money(whole), f"{_share(whole.saved_share)} of the bill"),
    )
    shown = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><p>{escape(note)}</p></div>"
        for name, value, note in cards
    )
    return f'<section class="wide"><dl class="cards">{shown}</dl></section>'


def _bounds(whole: Figures) -> str:
    certified = "certified" if whole.certified else "not certified"
    return (
        f"at most {whole.bad_hit_bound:.1%} of hits, {whole.bad_of_all_bound:.2%} of all (95 %): "
        f"{certified}"
    )


def _share(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:.1%}"


def _money(whole: Figures) -> str:
    return f"${whole.saved:,.4f}" if whole.priced else "unknown"


# --- plots -------------------------------------------------------------------------------------

_CURVES = (("a", "prefix"), ("b", "semantic"), ("c", "exact"))


def _rates(data: ReportData) -> str:
    parts = [part for _, part in data.hours]
    exact = [p.hits_exact / p.requests if p.requests else None for p in parts]
    values = ([p.prefix_hit_rate for p in parts], [p.semantic_hit_rate for p in parts], exact)
    curves = [
        Line(name=name, colour=colour, values=some)
        for (colour, name), some in zip(_CURVES, values, strict=True)
    ]
    return svg.lines("hit rates over time", [hour for hour, _ in data.hours], curves)


def _savings(whole: Figures) -> str:
    if not whole.priced:
        steps = [
            Step(name="input tokens", amount=whole.input + whole.saved_input, total=True),
            Step(name="prefix cache", amount=-whole.cached),
            Step(name="spared calls", amount=-whole.saved_input),
        ]
        return svg.waterfall("tokens saved", steps, money=False) + (
            "<p>Money is unknown: give prices in <code>telemetry.prices</code>.</p>"
        )
    bill = whole.uncached + whole.spared
    steps = [
        Step(name="without caches", amount=bill, total=True),
        Step(name="prefix cache", amount=-whole.saved_by_prefix),
        Step(name="hits", amount=-whole.spared),
        Step(name="lost to bad hits", amount=whole.lost),
        Step(name="checking hits", amount=whole.verification),
        Step(name="with ragcache", amount=bill - whole.saved, total=True),
    ]
    return svg.waterfall("savings", steps)


def _documents(data: ReportData) -> str:
    rows = [
        (d.name, float(d.prompts), f"{d.prompts:,} prompts, {d.reusable / d.prompts:.0%} reusable")
        for d in data.documents
    ]
    return svg.bars("documents by reuse", rows)


def _plot(title: str, drawing: str, below: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{drawing}{below}</section>"


def _legend(names: Iterable[tuple[str, str]]) -> str:
    items = "".join(
        f'<li><span style="background:var(--{colour})"></span>{escape(name)}</li>'
        for colour, name in names
    )
    return f'<ul class="legend">{items}</ul>'


# --- tables ------------------------------------------------------------------------------------


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return f"<section><h2>{escape(title)}</h2><p>none</p></section>"
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return (
        f'<section><h2>{escape(title)}</h2><div class="scroll"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table></div></section>"
    )


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{escape(str(value))}</td>"


def _why(counts: Iterable[tuple[str, int]], catalogue: dict[str, Reason]) -> list[Sequence[object]]:
    return [
        (f"{word}: {catalogue[word].means}" if word in catalogue else word, count)
        for word, count in counts
    ]


def _group(what: str, name: str, part: Figures) -> Sequence[object]:
    hits, prefix = _share(part.hit_rate), _share(part.prefix_hit_rate)
    return (what, name, part.requests, hits, prefix, _money(part))


def _scenario(row: Scenario) -> Sequence[object]:
    rates = (row.prefix_hit_rate, row.semantic_hit_rate, row.saved_share)
    return (row.name, *(_share(rate) for rate in rates), row.basis)
