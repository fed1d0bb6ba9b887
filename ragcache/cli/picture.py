"""The curve of a calibration as PNG, drawn with Pillow where that is installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..telemetry.report.curve import COLOURS, curves_of

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

    from ..lookup.calibration import Calibration

_WIDTH, _HEIGHT, _MARGIN = 800, 480, 50


def png(found: Calibration) -> bytes:
    """Return the curve as PNG.

    Raises:
        ConfigError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise ConfigError(
            "a .png needs Pillow: pip install pillow, or write the curve as .svg"
        ) from error
    places, curves = curves_of(found)
    image = Image.new("RGB", (_WIDTH, _HEIGHT), "#ffffff")
    draw = ImageDraw.Draw(image)
    _frame(draw, places)
    for at, curve in enumerate(curves):
        points = [(_x(i, len(places)), _y(v)) for i, v in enumerate(curve.values) if v is not None]
        draw.line(points, fill=COLOURS[curve.colour], width=3)
        draw.text((_MARGIN + 10 + 160 * at, 12), curve.name, fill=COLOURS[curve.colour])
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _frame(draw: ImageDraw, places: Sequence[str]) -> None:
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        draw.line([(_MARGIN, _y(share)), (_WIDTH - _MARGIN, _y(share))], fill="#dddddd")
        draw.text((8, _y(share) - 6), f"{share:.0%}", fill="#444444")
    if places:
        draw.text((_MARGIN, _HEIGHT - 30), f"threshold {places[0]}", fill="#444444")
        draw.text((_WIDTH - 2 * _MARGIN, _HEIGHT - 30), places[-1], fill="#444444")


def _x(at: int, count: int) -> float:
    return _MARGIN + (_WIDTH - 2 * _MARGIN) * at / max(count - 1, 1)


def _y(share: float) -> float:
    return _MARGIN + (_HEIGHT - 2 * _MARGIN) * (1 - share)
