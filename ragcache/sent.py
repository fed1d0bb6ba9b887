"""How formatted messages were sent, so that an earlier turn goes out again byte for byte.

The caller's history holds the message as it was before its blocks were moved. A provider's cache
holds it as it was sent. What is kept is small: lengths and an order, never a text.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .types import Formatted


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Where the blocks of a text stand, in which order they were sent, and where it was split.

    Args:
        head: Length of the text before the blocks.
        separator: Between two blocks.
        blocks: Lengths of the blocks, as the caller had them.
        order: The blocks in the order sent.
        splits: Places in that order behind which the text was split into content parts.
    """

    head: int
    separator: str
    blocks: tuple[int, ...]
    order: tuple[int, ...]
    splits: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, formatted: Formatted, order: tuple[int, ...], splits: tuple[int, ...]
    ) -> Arrangement:
        """Return the arrangement of a formatted prompt's blocks."""
        return cls(
            head=len(formatted.head),
            separator=formatted.separator,
            blocks=tuple(len(block) for block in formatted.blocks),
            order=order,
            splits=splits,
        )

    def pieces(self, text: str) -> list[str]:
        """Return the text as sent: one piece, or one more than there are splits."""
        blocks, at = [], self.head
        for length in self.blocks:
            blocks.append(text[at : at + length])
            at += length + len(self.separator)
        tail = text[at - len(self.separator) :]
        pieces, current = [], [text[: self.head]]
        for place, block in enumerate(self.order):
            last = place == len(self.order) - 1
            current += [blocks[block], "" if last else self.separator]
            if place in self.splits:
                pieces.append("".join(current))
                current = []
        return [*pieces, "".join([*current, tail])]

    def content(self, text: str, marks: Mapping[int, Mapping[str, Any]] | None = None) -> Any:
        """Return the message content as sent: a text, or text parts, those at `marks` marked."""
        pieces = self.pieces(text)
        if not self.splits:
            return pieces[0]
        parts: list[dict[str, Any]] = []
        for at, piece in enumerate(pieces):
            if piece:
                parts.append({"type": "text", "text": piece})
                place = self.splits[at] if at < len(self.splits) else -1
                if marks and place in marks:
                    parts[-1]["cache_control"] = dict(marks[place])
        return parts


class SentTurns:
    """Arrangements by tenant and by the text they are of, the most recently used ones."""

    def __init__(self, size: int = 8192) -> None:
        self._size = size
        self._known: OrderedDict[bytes, Arrangement] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, tenant: str, text: str, arrangement: Arrangement) -> None:
        """Note how a text was sent."""
        key = _key(tenant, text)
        with self._lock:
            self._known[key] = arrangement
            self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)

    def find(self, tenant: str, text: str) -> Arrangement | None:
        """Return how this text was sent, None where it was not or that is forgotten."""
        key = _key(tenant, text)
        with self._lock:
            return self._known.get(key)


def _key(tenant: str, text: str) -> bytes:
    digest = hashlib.sha256(tenant.encode() + b"\0")
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.digest()
