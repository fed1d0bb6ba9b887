"""An embedder whose similarities are a table."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Sequence

import numpy as np

from ragcache.types import Embedding


class TableEmbedder:
    """Gives (cos, sin) in a plane per group: `place("group", 0.97)` has cosine 0.97 to 1.0 there.

    A text that is not in the table gets a direction of its own. Calls are counted and texts kept.
    """

    dimensions = 16

    def __init__(self, name: str = "table", *, delay_s: float = 0.0) -> None:
        self.id = name
        self.delay_s = delay_s
        self.texts: list[str] = []
        self._table: dict[str, np.ndarray] = {}

    def place(self, text: str, similarity: float, group: int = 0) -> None:
        vector = np.zeros(self.dimensions, dtype=np.float32)
        vector[group * 2] = similarity
        vector[group * 2 + 1] = math.sqrt(max(0.0, 1.0 - similarity**2))
        self._table[text] = vector

    async def open(self) -> None:
        pass

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        self.texts.extend(texts)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return [Embedding(text=text, vector=self._vector(text)) for text in texts]

    def _vector(self, text: str) -> np.ndarray:
        if text in self._table:
            return self._table[text]
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).normal(size=self.dimensions).astype(np.float32)
        vector[:8] = 0.0  # never near a placed text
        return vector / np.linalg.norm(vector)

    async def close(self) -> None:
        pass
