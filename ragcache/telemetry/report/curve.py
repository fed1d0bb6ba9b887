"""The curve of a calibration: what each threshold serves, and how much of it is wrong. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ...lookup.calibration import Calibration
from .svg import Line, lines

#: Plain colours for a drawing that stands without the page's style.
_STYLE = (
    "<style>svg{background:#fff}text{font:11px system-ui,sans-serif;fill:#444}"
    ".grid{stroke:#ddd}.curve{fill:none;stroke-width:2}</style>"
)
COLOURS = {"a": "#2b66c8", "bad": "#c23a2e", "muted": "#9aa2aa"}


def curves_of(found: Calibration) -> tuple[Sequence[str], Sequence[Line]]:
    """Return the thresholds, lowest first, and recall, wrong of hits and its bound at each."""
    points = sorted(found.curve, key=lambda point: point.threshold)
    places = [f"{point.threshold:.3f}" for point in points]
    named = (("recall", "a", "recall"), ("wrong of hits", "bad", "wrong_hits"))
    bound = Line(name="its bound", colour="muted", values=[p.upper_hits for p in points])
    curves = [
        Line(name=name, colour=colour, values=[getattr(p, field) for p in points])
        for name, colour, field in named
    ]
    return places, [*curves, bound]


def drawing(found: Calibration) -> str:
    """Return the curve as an SVG file."""
    places, curves = curves_of(found)
    drawn = lines("calibration", places, curves, height=240)
    for name, colour in COLOURS.items():
        drawn = drawn.replace(f"var(--{name})", colour)
    named = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return named.replace(">", f">{_STYLE}", 1)
