"""What looking at a store's health finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Where it is not well, `detail` says what to do. `advice` is what could be better.
    """

    name: str
    ok: bool
    detail: str = ""
    advice: str = ""
