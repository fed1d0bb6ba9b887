"""What is known of a pair of questions, as numbers: what a fitted second opinion looks at.

All are the same whichever question comes first. Beside what the gates and the alignment say
they tell how rare the words are that only one side has, and which common words only one side
or both have: "how do you" beside "how do I" matters to some collections of questions and not
to others, so it is left to the labels.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .alignment import similarities, weakest
from .gates import GATES
from .matching import Comparison, compare, function_likeness
from .reading import Reading, likeness
from .words import HAN

_TOKEN = re.compile(rf"[{HAN}]|[^\W\d_{HAN}]+|\d+|[?.,？。，]")
#: How many words are told that only one side has, and how many that both have.
_ONE_SIDE, _BOTH_SIDES = 120, 60

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The words of the labelled questions.

    Args:
        questions: How many there were.
        found: In how many of them a stem occurs.
        one_side: Words whose presence on one side only is told, the commonest first.
        both_sides: Words whose presence on both sides is told.
    """

    questions: int
    found: Mapping[str, int]
    one_side: tuple[str, ...]
    both_sides: tuple[str, ...]

    def rarity(self, stem: str) -> float:
        """Return the log of how many questions there are to one with this word."""
        return math.log((1 + self.questions) / (1 + self.found.get(stem, 0)))

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "questions": self.questions,
            "found": dict(self.found),
            "one_side": list(self.one_side),
            "both_sides": list(self.both_sides),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Vocabulary:
        """Return the words. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(
            questions=int(value["questions"]),
            found={str(stem): int(count) for stem, count in value["found"].items()},
            one_side=tuple(map(str, value["one_side"])),
            both_sides=tuple(map(str, value["both_sides"])),
        )


def vocabulary(pairs: Iterable[tuple[Reading, Reading]]) -> Vocabulary:
    """Return the words of labelled pairs; the labels are not looked at."""
    seen: dict[str, Reading] = {}
    apart: Counter[str] = Counter()
    together: Counter[str] = Counter()
    for stored, asked in pairs:
        seen[stored.text], seen[asked.text] = stored, asked
        one, other = set(tokens(stored.text)), set(tokens(asked.text))
        apart.update(one ^ other)
        together.update(one & other)
    found = Counter(stem for reading in seen.values() for stem in set(reading.stems))
    return Vocabulary(
        questions=len(seen),
        found={stem: count for stem, count in found.items() if count > 1},
        one_side=_commonest(apart, _ONE_SIDE),
        both_sides=_commonest(together, _BOTH_SIDES),
    )


def _commonest(counts: Counter[str], most: int) -> tuple[str, ...]:
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(word for word, _ in ranked[:most])


def tokens(text: str) -> list[str]:
    """Return words, numbers and the punctuation that ends or joins sentences, lower case."""
    return _TOKEN.findall(text.casefold())


def features(known: Vocabulary, stored: Reading, asked: Reading, similarity: float) -> list[float]:
    """Return the numbers of a pair; `bent` and `told` ones stand behind the plain ones."""
    c = compare(stored, asked)
    one, other = tokens(stored.text), tokens(asked.text)
    plain = [
        similarity,
        *_explained(c, known),
        *_left_over(c, known),
        *_shapes(stored, asked, one, other),
        *(float(differs(c)) for _, differs in GATES),
    ]
    return [*plain, *_bent(plain), *_told(known, set(one), set(other))]


def senses(stored: Reading, asked: Reading) -> Floats | None:
    """Return where the sentence vectors differ and agree, component by component, or None.

    Absolute differences and products, as a trained head over two sentence vectors takes them
    (Conneau et al. 2017, arXiv 1705.02364): which directions matter is left to the labels.
    """
    if likeness(stored, asked) is None:
        return None
    one, other = (_unit(each.sentence) for each in (stored, asked))
    found: Floats = np.concatenate([np.abs(one - other), one * other])
    return found


def _unit(vector: NDArray[np.int8] | None) -> Floats:
    plain = np.asarray(vector, dtype=np.float64)
    unit: Floats = plain / np.linalg.norm(plain)
    return unit


def _explained(c: Comparison, known: Vocabulary) -> list[float]:
    """How well the words of each side find counterparts, plainly and by rarity."""
    worst = weakest(c) if c.open_left or c.open_right else 1.0
    cosines = similarities(c)
    if cosines is None:
        return [-1.0 if worst is None else worst, 0.0, 0.0, 0.0, 0.0]
    best = cosines.max(axis=1), cosines.max(axis=0)
    weighted = sorted(
        _weighted(rows, [known.rarity(stem) for stem in reading.stems])
        for rows, reading in zip(best, (c.stored, c.asked), strict=True)
    )
    means, lowest = sorted(float(b.mean()) for b in best), min(float(b.min()) for b in best)
    return [0.0 if worst is None else worst, means[0], lowest, *weighted]


def _weighted(values: NDArray[np.float32], weights: Sequence[float]) -> float:
    whole = sum(weights)
    return float(values @ np.asarray(weights)) / whole if whole else 1.0


def _left_over(c: Comparison, known: Vocabulary) -> list[float]:
    """How many words are left over on either side, and how rare they are."""
    mine = [c.stored.content[at].stem for at in c.open_left]
    theirs = [c.asked.content[at].stem for at in c.open_right]
    rare = [sum(map(known.rarity, stems)) for stems in (mine, theirs)]
    whole = [sum(map(known.rarity, reading.stems)) for reading in (c.stored, c.asked)]
    shares = sorted(_ratio(part, of) if of else 0.0 for part, of in zip(rare, whole, strict=True))
    return [
        *map(float, sorted((len(mine), len(theirs)))),
        *sorted(rare),
        *shares,
        max((known.rarity(stem) for stem in (*mine, *theirs)), default=0.0),
        float(len(c.left) + len(c.right)),
    ]


def _shapes(
    stored: Reading, asked: Reading, one: Sequence[str], other: Sequence[str]
) -> list[float]:
    """How alike the texts are as they are written."""
    a, b = set(one), set(other)
    mine, theirs = set(stored.stems), set(asked.stems)
    longest = max(len(one), len(other), 1)
    lengths = sorted((len(one), len(other)))
    only = sorted((len(a - b), len(b - a)))
    return [
        _ratio(len(mine & theirs), len(mine | theirs)),
        _ratio(len(a & b), len(a | b)),
        _shared(pairwise(one), pairwise(other)),
        _shared(_grams(stored.text, 3), _grams(asked.text, 3)),
        _shared(_grams(stored.text, 4), _grams(asked.text, 4)),
        function_likeness(stored, asked),
        _in_order(one, other),
        _common(one, other) / longest,
        _common(one[::-1], other[::-1]) / longest,
        *map(float, lengths),
        float(lengths[1] - lengths[0]),
        *map(float, only),
        float(len(stored.text) + len(asked.text)),
        *map(float, sorted((len(stored.content), len(asked.content)))),
        float(stored.question == asked.question),
        float(one[:1] == other[:1]),
        float(one.count("?") + other.count("?")),
        float(abs(one.count("?") - other.count("?"))),
        float(abs(one.count(".") - other.count("."))),
    ]


def _shared(one: Iterable[Any], other: Iterable[Any]) -> float:
    a, b = set(one), set(other)
    return _ratio(len(a & b), len(a | b))


def _grams(text: str, length: int) -> set[str]:
    padded = f" {text.casefold().strip(' ?.!？。！')} "
    return {padded[at : at + length] for at in range(len(padded) - length + 1)}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words both begin with."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


def _in_order(one: Sequence[str], other: Sequence[str]) -> float:
    """The longest common subsequence as a share of the longer text."""
    row = [0] * (len(other) + 1)
    for word in one:
        corner = 0
        for at, facing in enumerate(other):
            above = row[at + 1]
            row[at + 1] = corner + 1 if word == facing else max(above, row[at])
            corner = above
    return _ratio(row[-1], max(len(one), len(other)))


#: The first numbers are also told squared, the next ones also times the similarity.
_SQUARED, _TIMES = 6, 15


def _bent(plain: Sequence[float]) -> list[float]:
    """Let a straight line bend where the similarity is high."""
    return [
        *(value * value for value in plain[:_SQUARED]),
        *(plain[0] * value for value in plain[_SQUARED:_TIMES]),
    ]


def _told(known: Vocabulary, one: set[str], other: set[str]) -> list[float]:
    return [
        *(float((word in one) != (word in other)) for word in known.one_side),
        *(float(word in one and word in other) for word in known.both_sides),
    ]
