"""Content words: what is left of a question without structure, frame and numbers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from ..types import Embedding
from .lexicon import english
from .lexicon.tables import tables
from .words import Word

_NEGATIONS = english.words(
    "not no never none nothing nobody neither nor without except non besides"
)
#: A particle may stand this many words behind its verb ("turn my water supply on").
_REACH = 5
_PARTICLES = frozenset(("on", "off", "in", "out", "up", "down", "back"))
_SEPARABLE = frozenset(("turn", "switch", "tak", "take", "put", "bring", "shut", "cut", "set"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A content word.

    Args:
        text: As written, lower case; the parts of a phrase joined by `_`.
        stem: Without inflection.
        proper: A name: capitalised or quoted.
        known: The embedder's vocabulary has it whole; a misspelt or rare word is not.
        soft: So light that it needs no counterpart.
    """

    text: str
    stem: str
    proper: bool = False
    known: bool = True
    soft: bool = False

    def as_json(self) -> list[Any]:
        """Return plain JSON values."""
        return [self.text, self.stem, int(self.proper) + 2 * int(self.known) + 4 * int(self.soft)]

    @classmethod
    def from_json(cls, value: Any) -> Content:
        """Return the word. Raises TypeError or ValueError for anything else."""
        text, stem, bits = value
        if not isinstance(text, str) or not isinstance(stem, str) or not isinstance(bits, int):
            raise TypeError("a content word is [text, stem, bits]")
        return cls(
            text=text, stem=stem, proper=bool(bits & 1), known=bool(bits & 2), soft=bool(bits & 4)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A content word with its place in the text."""

    content: Content
    start: int
    end: int


def contents(
    words: Sequence[Word], taken: Collection[int], embedding: Embedding | None, text: str
) -> tuple[list[Placed], list[Word]]:
    """Return the content words in order, and all other words."""
    pieces = _pieces(embedding, text)
    phrases, parts = _phrases(words)
    placed: list[Placed] = []
    rest: list[Word] = []
    for at, word in enumerate(words):
        if at in taken or at in parts:
            continue
        if at in phrases:
            placed.append(_phrase(words, (at, *phrases[at])))
        elif _is_content(word):
            placed.append(_single(word, pieces))
        else:
            rest.append(word)
    return placed, rest


def _is_content(word: Word) -> bool:
    text = word.text
    structural = text in english.FUNCTION or text in english.FRAME or text in _NEGATIONS
    return text[0].isalpha() and (not structural or (word.proper and len(text) > 1))


def _single(word: Word, pieces: Sequence[tuple[int, int]] | None) -> Placed:
    known = pieces is None or sum(a < word.end and b > word.start for a, b in pieces) <= 1
    soft = not word.proper and word.text in english.SOFT
    content = Content(text=word.text, stem=word.stem, proper=word.proper, known=known, soft=soft)
    return Placed(content=content, start=word.start, end=word.end)


def _phrase(words: Sequence[Word], places: tuple[int, ...]) -> Placed:
    parts = [words[at] for at in places]
    content = Content(
        text="_".join(part.text for part in parts),
        stem="_".join(part.stem for part in parts),
    )
    return Placed(content=content, start=parts[0].start, end=parts[0].end)


def _phrases(words: Sequence[Word]) -> tuple[dict[int, tuple[int, ...]], frozenset[int]]:
    """Return the places of phrases: first word -> the others."""
    known = tables().phrases
    found: dict[int, tuple[int, ...]] = {}
    parts: set[int] = set()
    for at, word in enumerate(words):
        if at in parts or word.stem not in known:
            continue
        for rest in known[word.stem]:
            places = _phrase_places(words, at, rest)
            if places and not parts.intersection(places):
                found[at] = places
                parts.update(places)
                break
    return found, frozenset(parts)


def _phrase_places(words: Sequence[Word], at: int, rest: tuple[str, ...]) -> tuple[int, ...] | None:
    following = [word.stem for word in words[at + 1 : at + 1 + len(rest)]]
    if following == list(rest):
        return tuple(range(at + 1, at + 1 + len(rest)))
    separable = len(rest) == 1 and rest[0] in _PARTICLES and words[at].stem in _SEPARABLE
    if not separable:
        return None
    for place in range(at + 2, min(at + 2 + _REACH, len(words))):
        if words[place].text == rest[0] and not _opens_phrase(words, place):
            return (place,)
    return None


def _opens_phrase(words: Sequence[Word], place: int) -> bool:
    """Whether a noun follows at once: "in the app" is no particle."""
    after = words[place + 1] if place + 1 < len(words) else None
    return after is not None and after.text in ("the", "a", "my", "your", "our", "this", "an")


def _pieces(embedding: Embedding | None, text: str) -> Sequence[tuple[int, int]] | None:
    if embedding is None or embedding.spans is None or embedding.text != text:
        return None
    return embedding.spans
