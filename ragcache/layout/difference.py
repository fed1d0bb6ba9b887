"""Where a prompt first differs from the previous one: the cause of lost reuse, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import AnyStr

from .plan import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first difference of two prompts.

    `part` names the piece ("tools", "system message", "document block 3", "tail"), `offset` is
    the position in bytes inside that piece, `at` in bytes from the start of the prompt.
    """

    part: str
    offset: int
    at: int

    def __str__(self) -> str:
        return f"first difference from the previous request: {self.part}, byte {self.offset}"


def first_difference(before: Sequence[Part], after: Sequence[Part]) -> Difference | None:
    """Return the first difference, or None where one prompt only continues the other."""
    at = 0
    for old, new in zip(before, after, strict=False):
        if old.text != new.text or old.name != new.name:
            offset = _common(old.text, new.text)
            inside = max(0, offset - new.mark)
            return Difference(part=new.name, offset=inside, at=at + offset)
        at += len(new.text if new.text.isascii() else _bytes(new.text))
    return None


def _common(before: str, after: str) -> int:
    if before.isascii() and after.isascii():  # its characters are its bytes
        return common_bytes(before, after)
    return common_bytes(_bytes(before), _bytes(after))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def common_bytes(before: AnyStr, after: AnyStr) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
