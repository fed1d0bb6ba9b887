"""What `wrap` is told once, and what a call may ask: the core's own, for every adapter."""

from __future__ import annotations

from ragcache.binding import BINDABLE, CONTROLS, Options, controls

__all__ = ["BINDABLE", "CONTROLS", "Options", "controls"]
