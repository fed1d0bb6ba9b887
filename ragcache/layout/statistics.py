"""Which blocks were retrieved together lately: what orders the blocks that nobody has sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..types import Fingerprint

#: Sets of so many blocks are counted by number; of more, each request counts by itself.
_MOST_BITS = 14
#: Weight of one request in the share of blocks that come back.
_LATEST = 1 / 24


class CoRetrieval:
    """The last requests of a trust group, as sets of blocks.

    One row of bits for each block, one column for each remembered request; the oldest request's
    column is used again for the newest. The last 1,000 requests tell within .002 of the hit rate
    what all of them would.

    Args:
        max_requests: How many requests are remembered.
    """

    def __init__(self, *, max_requests: int = 1000) -> None:
        self._columns: list[tuple[Fingerprint, ...]] = [()] * max(8, max_requests)
        self._rows: dict[Fingerprint, bytearray] = {}
        self._names: dict[Fingerprint, tuple[str, ...]] = {}
        self._by_name: dict[str, set[Fingerprint]] = {}
        #: Share of the blocks of late requests that came before: 1 until requests tell.
        self.returning = 1.0
        self._next = 0
        self._filled = 0
        self._row_bytes = (len(self._columns) + 7) // 8

    def __len__(self) -> int:
        return self._filled

    def add(
        self,
        blocks: Iterable[Fingerprint],
        *,
        names: Mapping[Fingerprint, tuple[str, ...]] | None = None,
    ) -> None:
        """Note the blocks of one request, and the documents that each of them holds."""
        at = self._next % len(self._columns)
        self._next += 1
        self._clear(at)
        self._columns[at] = tuple(dict.fromkeys(blocks))
        self._filled = min(self._next, len(self._columns))
        new = 0
        for block in self._columns[at]:
            row = self._rows.get(block)
            if row is None:
                new += 1
                row = self._rows[block] = bytearray(self._row_bytes)
                self._name(block, (names or {}).get(block, ()))
            row[at >> 3] |= 1 << (at & 7)
        if self._columns[at]:
            returning = 1 - new / len(self._columns[at])
            self.returning += _LATEST * (returning - self.returning)

    def forget(self, names: Iterable[str]) -> tuple[Fingerprint, ...]:
        """Forget the blocks of documents that changed; return which, by document or block."""
        found = {block for name in names for block in self._by_name.get(name, ())}
        for block in found:
            self._drop(block)
        return tuple(found)

    def shared(
        self, blocks: Sequence[Fingerprint]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return which of `blocks` past requests held, and how many requests held just those.

        One row a block, one column a set of blocks, 0 or 1; requests with none are left out.
        """
        none = bytes(self._row_bytes)
        packed = b"".join([self._rows.get(block, none) for block in blocks])
        rows = np.frombuffer(packed, dtype=np.uint8).reshape(len(blocks), self._row_bytes)
        bits = np.unpackbits(rows, axis=1, bitorder="little")
        if len(blocks) > _MOST_BITS:
            found = bits[:, bits.any(axis=0)].astype(np.float64)
            return found, np.ones(found.shape[1])
        places = np.arange(len(blocks))
        counts = np.bincount((1 << places).astype(np.uint16) @ bits, minlength=1)
        counts[0] = 0
        sets = np.flatnonzero(counts)
        return (sets >> places[:, None] & 1).astype(np.float64), counts[sets].astype(np.float64)

    def _clear(self, at: int) -> None:
        keep = ~(1 << (at & 7)) & 0xFF
        for block in self._columns[at]:
            row = self._rows.get(block)
            if row is None:
                continue
            row[at >> 3] &= keep
            if not any(row):
                self._drop(block)

    def _name(self, block: Fingerprint, names: tuple[str, ...]) -> None:
        self._names[block] = (block, *names)
        for name in self._names[block]:
            self._by_name.setdefault(name, set()).add(block)

    def _drop(self, block: Fingerprint) -> None:
        del self._rows[block]
        for name in self._names.pop(block):
            blocks = self._by_name[name]
            blocks.discard(block)
            if not blocks:
                del self._by_name[name]
