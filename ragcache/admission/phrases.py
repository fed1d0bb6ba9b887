"""Phrases that are looked for in long texts, quickly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


def compiled(*patterns: str) -> re.Pattern[str]:
    """Return one pattern for several, in any case and over lines."""
    return re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A pattern, and the words of which every match holds one."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]


def phrase(words: str, *pattern: str) -> Phrase:
    """Return a phrase by its words, separated by bars, and the pieces of its pattern."""
    return Phrase(tuple(words.split("|")), compiled("".join(pattern)))


class Phrases:
    """Phrases of a kind.

    A pattern is looked for only where one of its words stands: looking for words is quick, and
    documents are long.
    """

    def __init__(self, *phrases: Phrase) -> None:
        self._phrases = phrases

    def __iter__(self) -> Iterator[Phrase]:
        return iter(self._phrases)

    def occur_in(self, folded: str) -> bool:
        """Whether one of them stands in a folded text."""
        lower = lowered(folded)
        return any(
            one.pattern.search(folded)
            for one in self._phrases
            if any(word in lower for word in one.words)
        )


def lowered(folded: str) -> str:
    """Return the text in lower case as patterns see it, to which an i is an i, dotted or not."""
    lower = folded.lower()
    return lower if lower.isascii() else lower.replace("i\u0307", "i").replace("ı", "i")
