"""The lists as look-up tables over stems, made once when they are first needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..words import stem
from . import chinese, english, opposites, siblings, synonyms


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What the gates know about stems.

    Args:
        opposites: Stems at the other end of an axis.
        kinds: Kinds a stem is one of.
        concepts: Concepts a stem can stand for.
        negators: Stems that turn a sentence round.
        weak_negators: Stems that can balance a negator, and do no more.
        phrases: First stems of phrases, with the rest of each.
        light: Stems that restrict nothing.
        narrowing: Stems that always do.
    """

    opposites: dict[str, frozenset[str]]
    kinds: dict[str, frozenset[int]]
    concepts: dict[str, frozenset[int]]
    negators: frozenset[str]
    weak_negators: frozenset[str]
    phrases: dict[str, tuple[tuple[str, ...], ...]]
    light: frozenset[str]
    narrowing: frozenset[str]


def entry(word: str) -> str:
    """Return the stem of a list's word; the parts of a phrase keep their joint."""
    return "_".join(stem(part) for part in word.split("_"))


@cache
def tables() -> Tables:
    """Return the tables of the lists of both languages."""
    return Tables(
        opposites=_opposites(),
        kinds=_groups(siblings.KINDS),
        concepts=_groups(synonyms.CONCEPTS),
        negators=frozenset(map(entry, opposites.IMPLICIT_NEGATORS.split())),
        weak_negators=frozenset(map(entry, opposites.WEAK_NEGATORS.split())),
        phrases=_phrases(),
        light=frozenset(map(stem, english.LIGHT)),
        narrowing=frozenset(map(stem, english.NARROWING)),
    )


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _opposites() -> dict[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in _opposite_pairs():
        if one != other:
            found[one].add(other)
            found[other].add(one)
    return {word: frozenset(others) for word, others in found.items()}


def _opposite_pairs() -> Iterable[tuple[str, str]]:
    for line in (*_lines(opposites.AXES), *_lines(chinese.OPPOSITES)):
        one, other = line.split("|")
        for a in one.split():
            for b in other.split():
                yield entry(a), entry(b)
    text = files(__package__).joinpath("wordnet_antonyms.txt").read_text(encoding="utf-8")
    for line in _lines(text):
        word, *others = line.split()
        for other in others:
            yield entry(word), entry(other)


def _groups(text: str) -> dict[str, frozenset[int]]:
    found: defaultdict[str, set[int]] = defaultdict(set)
    for at, line in enumerate(_lines(text)):
        for word in line.split():
            found[entry(word)].add(at)
    return {word: frozenset(at) for word, at in found.items()}


def _phrases() -> dict[str, tuple[tuple[str, ...], ...]]:
    found: defaultdict[str, set[tuple[str, ...]]] = defaultdict(set)
    for text in (opposites.AXES, synonyms.CONCEPTS, siblings.KINDS):
        for word in text.split():
            if "_" in word:
                first, *rest = entry(word).split("_")
                found[first].add(tuple(rest))
    return {first: tuple(sorted(rest, key=len, reverse=True)) for first, rest in found.items()}
