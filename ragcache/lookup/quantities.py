"""Numbers, units, dates, versions and ids: what must be equal on both sides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .lexicon import english
from .words import Word

_ID = re.compile(r"[a-z]+-?\d[\w-]*")
_QUARTER = frozenset(("q", "fy", "h", "year", "grade", "level", "band", "zone", "phase", "tier"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantities:
    """The quantities of a question, sorted, and the places of the words that form them."""

    values: tuple[str, ...]
    places: frozenset[int]


def quantities(words: Sequence[Word]) -> Quantities:
    """Return every quantity that the words spell, in one spelling."""
    values: list[str] = []
    places: set[int] = set()
    for at in range(len(words)):
        value = _value(words, at, after_number=at - 1 in places)
        if value is None:
            continue
        places.add(at)
        if value:
            values.append(value)
    return Quantities(values=tuple(sorted(values)), places=frozenset(places))


def _value(words: Sequence[Word], at: int, *, after_number: bool) -> str | None:
    """Return the quantity at a place: None where there is none, "" where it says nothing."""
    text = words[at].text
    if text[0].isdigit() or _version(text):
        return _number(text)
    if any(map(str.isdigit, text)) and _ID.fullmatch(text):
        return f"id:{text}"
    if text in english.UNIT_SIGNS:
        return f"unit:{english.UNIT_SIGNS[text]}"
    if text == "#":
        return ""
    if after_number and text in english.UNITS:
        return f"unit:{english.UNITS[text]}"
    return _word_value(words, at)


def _word_value(words: Sequence[Word], at: int) -> str | None:
    text = words[at].text
    if text in english.NUMBER_WORDS and not _is_pronoun_like(words, at):
        return english.NUMBER_WORDS[text]
    if text in english.DAYS or text[:-1] in english.DAYS:
        return f"day:{text.rstrip('s') if text[:-1] in english.DAYS else text}"
    if text in english.DAYS_SHORT and words[at].proper:
        return f"day:{english.DAYS_SHORT[text]}"
    if text in english.MONTHS and (text not in ("may", "march") or words[at].proper):
        return f"month:{text}"
    if text in english.MONTHS_SHORT and words[at].proper:
        return f"month:{english.MONTHS_SHORT[text]}"
    return None


def _is_pronoun_like(words: Sequence[Word], at: int) -> bool:
    """One, another, second: a number only where it counts or orders something."""
    text = words[at].text
    if text == "one":
        return True
    if text == "second":
        before = words[at - 1].text if at else ""
        return before.isdigit() or before in ("a", "per", "each", "every")
    return False


def _version(text: str) -> bool:
    return text[0] == "v" and bool(re.fullmatch(r"v\d+(?:\.\d+)*", text))


def _number(text: str) -> str:
    """One spelling for one number: 5,000 is 5000, 07 is 7, v2.4 is 2.4, 9.15 stays."""
    plain = text.removeprefix("v")
    if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", plain):
        plain = plain.replace(",", "")
    if re.fullmatch(r"\d+\.0+", plain):
        plain = plain.split(".", 1)[0]
    if re.fullmatch(r"\d{1,2}:00", plain):
        plain = plain.split(":", 1)[0]
    return plain.rstrip(".,:/-") or plain
