"""Documents of one request that overlap: the text they share is sent, and paid for, twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..plan import Count
from .findings import Finding
from .segments import Located

#: Characters from which on a common piece is an overlap and no turn of phrase.
_LEAST = 40


def overlaps(located: Sequence[Located], count: Count) -> Iterator[Finding]:
    """Yield one finding for each request with overlapping documents, with the tokens sent twice.

    It is only reported. A chunk that is trimmed because of its neighbour is another chunk behind
    every other one, and found in no cache.
    """
    known: dict[tuple[str, str], str] = {}
    for one in located:
        texts = list(dict.fromkeys(block.text for block in one.blocks))
        found = [
            shared
            for first in texts
            for second in texts
            if first is not second and (shared := _known(known, first, second))
        ]
        if found:
            tokens = sum(count(shared) for shared in found)
            detail = f"{len(found)} overlaps, about {tokens} tokens sent twice"
            yield Finding(rule="overlap", path=one.record.path, line=one.record.line, detail=detail)


def _known(known: dict[tuple[str, str], str], first: str, second: str) -> str:
    shared = known.get((first, second))
    if shared is None:
        shared = known[first, second] = common(first, second)
    return shared


def common(first: str, second: str) -> str:
    """Return the end of `first` that `second` begins with, or all of `second` where it is inside.

    Shorter pieces than 40 characters count for nothing.
    """
    start = second[:_LEAST]
    if len(start) < _LEAST:
        return ""
    if second in first:
        return second
    at = first.find(start)
    while at >= 0:
        if second.startswith(first[at:]):
            return first[at:]
        at = first.find(start, at + 1)
    return ""
