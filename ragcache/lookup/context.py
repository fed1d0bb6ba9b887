"""Whether a question can be understood without the conversation before it."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import Message
from .reading import read


def needs_context(question: str, history: Sequence[Message] = ()) -> bool:
    """Return whether the question leans on what was said before.

    Without history only a question that cannot stand alone does ("cancel it"); with history
    every question does that is short or points back.
    """
    reading = read(question)
    if reading.leans:
        return True
    return bool(history) and len(reading.content) < 3
