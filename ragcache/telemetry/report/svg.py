"""Plots as inline SVG, drawn by plain functions. Pure.

The drawing area is as wide as a phone, so that text stays readable there; colours are CSS
variables of the page, which has a light and a dark set. A title below each mark is what a pointer
shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 10, 12, 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve: a name, a colour variable, and a value for each place; None leaves a gap."""

    name: str
    colour: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """One bar of a histogram: from `low` to `high`, in parts (colour variable, count)."""

    low: float
    high: float
    parts: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a waterfall. A total stands on the ground; a change hangs where it begins."""

    name: str
    amount: float
    total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One block of a prefix tree: how many tokens went through it, and what followed."""

    name: str
    tokens: float
    children: Sequence[Node] = field(default=())


def _svg(height: int, label: str, parts: Iterable[str]) -> str:
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{body}</svg>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    size = f'width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" {size} fill="var(--{colour})" rx="1.5">'
        f"<title>{escape(title)}</title></rect>"
    )


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


# --- rates over time ---------------------------------------------------------------------------


def lines(label: str, places: Sequence[str], curves: Sequence[Line], *, height: int = 200) -> str:
    """Draw rates between 0 and 1 over time."""
    across = WIDTH - _LEFT - _RIGHT
    down = height - _TOP - _BOTTOM

    def x(at: int) -> float:
        return _LEFT + (across * at / (len(places) - 1) if len(places) > 1 else across / 2)

    def y(value: float) -> float:
        return _TOP + down * (1 - value)

    parts = [*_shares(y)]
    for curve in curves:
        parts += [_path(curve, x, y), *_dots(curve, places, x, y)]
    if places:
        parts.append(_text(_LEFT, height - 8, places[0]))
    if len(places) > 1:
        parts.append(_text(WIDTH - _RIGHT, height - 8, places[-1], anchor="end"))
    return _svg(height, label, parts)


def _shares(y: Callable[[float], float]) -> Iterable[str]:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        height = y(share)
        yield _rule(_LEFT, height, WIDTH - _RIGHT, height)
        yield _text(_LEFT - 5, height + 4, f"{share:.0%}", anchor="end")


def _path(curve: Line, x: Callable[[int], float], y: Callable[[float], float]) -> str:
    steps, pen = [], "M"
    for at, value in enumerate(curve.values):
        if value is None:
            pen = "M"
            continue
        steps.append(f"{pen}{x(at):.1f} {y(value):.1f}")
        pen = "L"
    return f'<path d="{" ".join(steps)}" class="curve" stroke="var(--{curve.colour})"/>'


def _dots(
    curve: Line, places: Sequence[str], x: Callable[[int], float], y: Callable[[float], float]
) -> Iterable[str]:
    for at, value in enumerate(curve.values):
        if value is not None:
            title = escape(f"{curve.name}, {places[at]}: {value:.1%}")
            yield (
                f'<circle cx="{x(at):.1f}" cy="{y(value):.1f}" r="2.5" '
                f'fill="var(--{curve.colour})"><title>{title}</title></circle>'
            )


# --- histogram ---------------------------------------------------------------------------------


def histogram(
    label: str, bins: Sequence[Bin], *, mark: float | None = None, height: int = 200
) -> str:
    """Draw stacked counts by similarity, with a mark where the threshold stands."""
    top = max((sum(count for _, count in b.parts) for b in bins), default=0) or 1
    low, high = (bins[0].low, bins[-1].high) if bins else (0.0, 1.0)
    across, down = WIDTH - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def x(value: float) -> float:
        return _LEFT + across * (value - low) / (high - low)

    parts = [_rule(_LEFT, _TOP + down, WIDTH - _RIGHT, _TOP + down)]
    parts += [_text(_LEFT - 5, _TOP + 8, f"{top:,}", anchor="end")]
    for one in bins:
        base = float(_TOP + down)
        for colour, count in one.parts:
            tall = down * count / top
            base -= tall
            title = f"{one.low:.2f} to {one.high:.2f}: {count:,}"
            parts.append(
                _rect(x(one.low) + 0.5, base, x(one.high) - x(one.low) - 1, tall, colour, title)
            )
    for value in (low, (low + high) / 2, high):
        anchor = "start" if value == low else "end" if value == high else "middle"
        parts.append(_text(x(value), height - 8, f"{value:.2f}", anchor=anchor))
    if mark is not None and low <= mark <= high:
        parts.append(_rule(x(mark), _TOP, x(mark), _TOP + down, "mark"))
        parts.append(
            _text(x(mark) - 4, _TOP + 8, f"threshold {mark:.2f}", anchor="end", kind="ink")
        )
    return _svg(height, label, parts)


# --- waterfall ---------------------------------------------------------------------------------


def waterfall(label: str, steps: Sequence[Step], *, money: bool = True) -> str:
    """Draw how one sum becomes another, a row for each step."""
    row, name_wide = 30, 118
    running, spans = 0.0, []
    for step in steps:
        begin = 0.0 if step.total else running
        running = step.amount if step.total else running + step.amount
        spans.append((min(begin, running), max(begin, running)))
    low = min([0.0, *(s[0] for s in spans)])
    high = max([*(s[1] for s in spans), low + 1e-12])
    across = WIDTH - name_wide - 70

    def x(value: float) -> float:
        return name_wide + across * (value - low) / (high - low)

    parts = [_rule(x(0), 4, x(0), row * len(steps) + 4)]
    for at, (step, (begin, end)) in enumerate(zip(steps, spans, strict=True)):
        y = 6 + row * at
        sign = "-" if step.amount < 0 else ""
        shown = f"{sign}${abs(step.amount):,.4f}" if money else f"{step.amount:,.0f}"
        colour = "total" if step.total else ("good" if step.amount < 0 else "bad")
        parts.append(_text(0, y + 15, step.name))
        parts.append(_rect(x(begin), y + 3, max(x(end) - x(begin), 1), row - 12, colour, shown))
        parts.append(_text(WIDTH, y + 15, shown, anchor="end", kind="ink"))
    return _svg(row * len(steps) + 12, label, parts)


# --- bars --------------------------------------------------------------------------------------


def bars(label: str, rows: Sequence[tuple[str, float, str]], *, colour: str = "a") -> str:
    """Draw a bar for each (name, size, what is said of it); the name stands above its bar."""
    row = 32
    top = max((size for _, size, _ in rows), default=0) or 1
    parts = []
    for at, (name, size, said) in enumerate(rows):
        y = row * at
        parts.append(_text(0, y + 12, _cut(name, 44)))
        parts.append(_text(WIDTH, y + 12, said, anchor="end", kind="ink"))
        parts.append(_rect(0, y + 17, max(WIDTH * size / top, 1), 7, colour, f"{name}: {said}"))
    return _svg(row * max(len(rows), 1), label, parts)


# --- icicle ------------------------------------------------------------------------------------


def icicle(label: str, root: Node, *, levels: int = 6) -> str:
    """Draw a prefix tree from the top down: a block is as wide as the tokens through it."""
    row = 30
    parts: list[str] = []
    _ice(parts, root, 0.0, float(WIDTH), 0, levels, row)
    depth = min(levels, _depth(root))
    return _svg(row * depth + 4, label, parts)


def _ice(
    parts: list[str], node: Node, x: float, width: float, level: int, levels: int, row: int
) -> None:
    if level >= levels or width < 1.5:
        return
    title = f"{node.name}: {node.tokens:,.0f} tokens"
    parts.append(_rect(x, row * level + 1, width - 1, row - 2, f"level{level % 4}", title))
    if width > 46:
        parts.append(_text(x + 4, row * level + 19, _cut(node.name, int(width / 6.2)), kind="on"))
    for child in node.children:
        share = width * child.tokens / node.tokens if node.tokens else 0.0
        _ice(parts, child, x, share, level + 1, levels, row)
        x += share


def _depth(node: Node) -> int:
    return 1 + max((_depth(child) for child in node.children), default=0)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(length - 1, 1)] + "…"
