"""Text to words: folding, splitting, stems."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..keys import fold
from . import english

_TOKEN = re.compile(
    r"[A-Za-z]+(?:['’][A-Za-z]+)?"  # words and contractions
    r"|\d+(?:[.,:/]\d+)*"  # numbers, times, versions
    r"|[\u3400-\u9fff]"  # one Chinese character
    r"|[£$€¥%#&+]"
)
_CONTRACTIONS = {
    "can't": "can not",
    "cannot": "can not",
    "won't": "will not",
    "shan't": "shall not",
    "what's": "what is",
    "let's": "let us",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a question with its place in the folded text."""

    text: str
    stem: str
    start: int
    end: int
    proper: bool = False


def words_of(text: str) -> tuple[Word, ...]:
    """Return the words of a folded text, contractions taken apart."""
    found: list[Word] = []
    for match in _TOKEN.finditer(text):
        start, end, raw = match.start(), match.end(), match.group()
        proper = raw[0].isupper() and bool(found) and not raw.startswith("I")
        found.extend(
            Word(text=part, stem=stem(part), start=start, end=end, proper=proper)
            for part in expand(raw.lower().replace("’", "'")).split()
        )
    return tuple(found)


def expand(word: str) -> str:
    """Return a contraction as the words it stands for."""
    if word in _CONTRACTIONS:
        return _CONTRACTIONS[word]
    if word.endswith("n't"):
        return f"{word[:-3]} not"
    return word.split("'", 1)[0] if "'" in word else word


def stem(word: str) -> str:
    """Return the word without its commonest endings."""
    if word in english.FUNCTION or len(word) <= 3 or not word.isascii():
        return word
    for ending, instead in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", "e")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return _undouble(word[: -len(ending)] + instead)
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _undouble(word: str) -> str:
    word = word.rstrip("e") if len(word) > 4 else word
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        return word[:-1]
    return word


__all__ = ["Word", "expand", "fold", "stem", "words_of"]
