"""Which words of two questions correspond, and which are left over on either side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from .content import Content
from .lexicon.tables import tables
from .reading import Reading
from .words import root, stem

#: What the type of a question already says: words for it need no counterpart.
_SAID = {
    "amount": """cost price fee charge pricing rate much amount expense tariff pay limit maximum
        dose dosage quota allowance worth value percentage percent salary entitlement""",
    "count": "number count total many amount entitlement quota",
    "duration": """long take duration length soon quick fast day hour week month year minute period
        quickly time deadline""",
    "frequency": "often frequent frequency schedule regular time",
    "when": "time date day year hour month deadline cutoff period schedule",
    "where": "place location city address locate find situated town country site capital",
    "who": """person people name author team country company club organization group artist player
        write inventor founder owner creator director contact winner leader president""",
    "why": "reason cause purpose",
    "distance": "far distance",
    "age": "old age",
    "size": "size big large tall height high low minimum length",
}
_SAYS = {kind: frozenset(map(stem, text.split())) for kind, text in _SAID.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two readings side by side.

    Args:
        pairs: Places of words that correspond, stored and asked.
        left: Places in the stored question that have no equal in the asked one.
        right: The same for the asked question.
        open_left: Those of `left` that nothing but vectors can explain.
        open_right: The same for `right`.
    """

    stored: Reading
    asked: Reading
    pairs: tuple[tuple[int, int], ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    open_left: tuple[int, ...]
    open_right: tuple[int, ...]


def compare(stored: Reading, asked: Reading) -> Comparison:
    """Match the words of two readings: by stem, concept, root, spelling."""
    one, other = stored.content, asked.content
    pairs = blocks(stored.stems, asked.stems)
    if stored.language != "zh":
        pairs = sorted({*pairs, *_repeated(one, other)})
    mine, theirs = {i for i, _ in pairs}, {j for _, j in pairs}
    left = [i for i in range(len(one)) if i not in mine]
    right = [j for j in range(len(other)) if j not in theirs]
    alike = [(i, j) for i, j in product(left, right) if _alike(one[i], other[j])]
    left_alike, right_alike = {i for i, _ in alike}, {j for _, j in alike}
    joined_left = _joined(one, left, other)
    joined_right = _joined(other, right, one)
    return Comparison(
        stored=stored,
        asked=asked,
        pairs=tuple(sorted({*pairs, *alike})),
        left=tuple(left),
        right=tuple(right),
        open_left=tuple(
            i for i in left if i not in left_alike | joined_left and not _said(one[i], asked)
        ),
        open_right=tuple(
            j for j in right if j not in right_alike | joined_right and not _said(other[j], stored)
        ),
    )


def blocks(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Pair equal words one to one, longest common run first.

    Longest first, so that a repeated word is paired with the one in the same surroundings.
    """
    places: dict[str, list[int]] = {}
    for j, word in enumerate(other):
        places.setdefault(word, []).append(j)
    free_one, free_other = [True] * len(one), [True] * len(other)
    pairs: list[tuple[int, int]] = []
    while True:
        length, i, j = _longest(one, places, free_one, free_other)
        if length == 0:
            return pairs
        for offset in range(length):
            free_one[i + offset] = free_other[j + offset] = False
            pairs.append((i + offset, j + offset))


def _longest(
    one: Sequence[str],
    places: Mapping[str, Sequence[int]],
    free_one: Sequence[bool],
    free_other: Sequence[bool],
) -> tuple[int, int, int]:
    best = (0, 0, 0)
    above: dict[int, int] = {}
    for i, word in enumerate(one):
        row: dict[int, int] = {}
        for j in places.get(word, ()) if free_one[i] else ():
            if not free_other[j]:
                continue
            length = row[j] = above.get(j - 1, 0) + 1
            if length > best[0]:
                best = (length, i - length + 1, j - length + 1)
        above = row
    return best


def _repeated(one: Sequence[Content], other: Sequence[Content]) -> list[tuple[int, int]]:
    """A word said twice on one side and once on the other is not left over."""
    if _distinct(one) and _distinct(other):
        return []
    return [(i, j) for i, a in enumerate(one) for j, b in enumerate(other) if a.stem == b.stem]


def _distinct(words: Sequence[Content]) -> bool:
    return len({word.stem for word in words}) == len(words)


def reversed_blocks(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return blocks X, M, Y of the first text that stand as Y, M, X in the second.

    Given as three places of the first text, one in each block. Two blocks that change places
    are fronting ("in settings, how do I ..."); three in reverse are another role for each:
    "from X to Y", "from Y to X".
    """
    ordered = sorted(pairs)
    starts = [
        at for at in range(len(ordered)) if at == 0 or ordered[at][1] != ordered[at - 1][1] + 1
    ]
    heads = [ordered[at] for at in starts]
    return [
        (x[0], m[0], y[0])
        for a, x in enumerate(heads)
        for b, m in enumerate(heads[a + 1 :], a + 1)
        if m[1] < x[1]
        for y in heads[b + 1 :]
        if y[1] < m[1]
    ]


def _alike(a: Content, b: Content) -> bool:
    """Whether two words of unequal stem say the same."""
    known = tables().concepts
    if known.get(a.stem, frozenset()) & known.get(b.stem, frozenset()):
        return True
    mine, theirs = root(a.stem), root(b.stem)
    if mine == theirs and len(mine) >= 4:
        return True
    return _misspelt(a, b)


def says(kind: str, reading: Reading) -> bool:
    """Whether a question put with "what" names what a question of this kind asks for."""
    said = _SAYS.get(kind, frozenset())
    return any(word in said for word in reading.stems)


def _said(word: Content, facing: Reading) -> bool:
    """Whether the word is too light to matter, or the other's question type says it."""
    return word.soft or word.stem in _SAYS.get(facing.question, frozenset())


def _misspelt(a: Content, b: Content) -> bool:
    """Whether one is a slip of the other: a slip is no word, and names are never slips."""
    if a.known and b.known:
        return False
    if a.proper or b.proper or min(len(a.text), len(b.text)) < 4:
        return False
    if not (a.text.isascii() and b.text.isascii()):
        return False
    most = 2 if max(len(a.text), len(b.text)) >= 7 else 1
    return edits(a.text, b.text, most) <= most


def edits(a: str, b: str, most: int) -> int:
    """Return the Damerau-Levenshtein distance (with transpositions), or more than `most`."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
        before, last = last, row
    return last[-1]


def _joined(one: Sequence[Content], places: Sequence[int], other: Sequence[Content]) -> set[int]:
    """Places of words that are written together on the other side: "log in", "login"."""
    if not places:
        return set()
    whole = {word.text.replace("_", "") for word in other}
    found: set[int] = set()
    for at in range(len(one) - 1):
        if one[at].text + one[at + 1].text in whole:
            found.update((at, at + 1))
    pairs = {other[at].text + other[at + 1].text for at in range(len(other) - 1)}
    found.update(at for at in places if one[at].text.replace("_", "") in pairs)
    return found


def function_likeness(stored: Reading, asked: Reading) -> float:
    """Return how many of the words of structure both share (multiset Jaccard)."""
    left = Counter(stored.function)
    shared = 0
    for word in asked.function:
        if left.get(word, 0):
            left[word] -= 1
            shared += 1
    whole = len(stored.function) + len(asked.function) - shared
    return shared / whole if whole else 1.0
