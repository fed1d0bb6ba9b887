"""Which documents a reworded question would bring: BM25, as traces of retrievals are made with."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

_WORD = re.compile(r"\w+")
#: Okapi BM25 with an idf that never falls below 0 (Robertson and Zaragoza 2009; Lucene's form).
_K1, _B = 1.2, 0.75


class Bm25:
    """Ranks documents by the words that they share with a question."""

    def __init__(self, texts: Sequence[str]) -> None:
        words = [_words(text) for text in texts]
        lengths = np.array([len(each) for each in words], dtype=np.float64)
        self._norm = _K1 * (1 - _B + _B * lengths / max(lengths.mean(), 1.0))
        self._found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, each in enumerate(words):
            for word, count in Counter(each).items():
                self._found[word].append((at, count))

    def best(self, question: str, k: int) -> list[int]:
        """Return the places of the best `k` documents, best first."""
        scores = np.zeros(len(self._norm))
        for word in _words(question):
            found = self._found.get(word, [])
            weight = math.log(1 + (len(scores) - len(found) + 0.5) / (len(found) + 0.5))
            for at, count in found:
                scores[at] += weight * count * (_K1 + 1) / (count + self._norm[at])
        return [int(at) for at in np.argsort(-scores, kind="stable")[:k]]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
