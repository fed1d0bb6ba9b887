"""What an answer itself rests on: its numbers, names and quotations that its documents hold.

Taken down when the answer is stored, and looked for again in the documents retrieved now. It adds
to the comparison of documents by content what that does not see: an answer without citations may
have its figure from a document far down the list, which changed since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..types import JsonObject
from .quantities import quantities
from .words import words_of

#: Under this name they stand beside the reading of the question, signed like it.
SUPPORT = "support"
_MOST = 64
_QUOTED = re.compile(r"[\"“«「『]([^\"”»」』\x00]{8,300})[\"”»」』]")
_LABEL = re.compile(r"\[\d{1,9}\]")


def support_of(answer: str, documents: Sequence[str]) -> list[str]:
    """Return the numbers, names and quotations of an answer that its documents hold.

    What no document holds (a sum, a name of the question) says nothing about the documents.
    """
    plain = _LABEL.sub(" ", answer)
    held = _joined(documents)
    quoted = [text for text in _QUOTED.findall(plain) if _holds(held, text.casefold())]
    for text in quoted:
        plain = plain.replace(text, " ")
    marked = [text for text in _marked(plain) if _holds(held, text.casefold())]
    return list(dict.fromkeys(text.casefold() for text in (*marked, *quoted)))[:_MOST]


def _marked(answer: str) -> Iterable[str]:
    """Yield numbers, ids and names as they are written."""
    words = words_of(answer)
    counted = quantities(words).places
    for at, word in enumerate(words):
        has_digit = any(c.isdigit() for c in word.text)
        if (at in counted and has_digit) or (word.proper and len(word.text) > 1):
            yield answer[word.start : word.end]


def is_supported(reading: JsonObject | None, documents: Sequence[str]) -> bool:
    """Whether the documents still hold what they held for the stored answer."""
    support: Any = reading.get(SUPPORT, ()) if isinstance(reading, Mapping) else ()
    if not support or not isinstance(support, (list, tuple)):
        return True
    held = _joined(documents)
    return all(isinstance(text, str) and _holds(held, text) for text in support)


def _joined(documents: Sequence[str]) -> str:
    return "\n".join(documents).casefold()


def _holds(held: str, text: str) -> bool:
    """Whether the text stands there by itself: 80 does not stand in 1980."""
    at = held.find(text)
    while at >= 0:
        before, after = held[at - 1 : at] if at else "", held[at + len(text) : at + len(text) + 1]
        if not (_sticks(before, text[0]) or _sticks(text[-1], after)):
            return True
        at = held.find(text, at + 1)
    return False


def _sticks(one: str, other: str) -> bool:
    """Whether two characters belong to one word or number."""
    if not one or not other or not (one.isascii() and other.isascii()):
        return False
    return (one.isdigit() and other.isdigit()) or (one.isalpha() and other.isalpha())
