"""A clock that the test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = datetime(2031, 4, 2, 9, 14, 7, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
