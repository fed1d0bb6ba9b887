"""Recorded retrievals asked one after another: only misses are stored, documents as retrieved.

A request is `{"query", "ids", "answers"}`, with `gold` the ids of the documents that carry the
answer; a document is `{"id", "text"}`. An answer served is right where both questions have the
same answers.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..keys import content_hash
from ..lookup import SUPPORT, LookupPolicy, decide, support_of
from ..protocols import Embedder
from ..types import Document, Entry, Hit, Lineage
from .questions import NOW, Asked, candidate_of, entry_of, error_rates, request_of, understood


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """A question, the documents that were found for it, best first, and its answer."""

    text: str
    documents: tuple[Document, ...]
    cited: frozenset[str]
    answer: str


def asked_of(
    rows: Iterable[Mapping[str, Any]], documents: Iterable[Mapping[str, Any]]
) -> list[Retrieval]:
    """Return the requests of a trace.

    Raises:
        ConfigError: A request has no answers, or names a document that is not there.
    """
    texts = {str(row["id"]): str(row["text"]) for row in documents}
    return [_retrieval(row, texts, at) for at, row in enumerate(rows, 1)]


def _retrieval(row: Mapping[str, Any], texts: Mapping[str, str], at: int) -> Retrieval:
    ids = [str(name) for name in row.get("ids", ())]
    if "answers" not in row or not all(name in texts for name in ids):
        raise ConfigError(f'request {at} is none: give {{"query", "ids", "answers"}}')
    return Retrieval(
        text=str(row["query"]),
        documents=tuple(Document(text=texts[name], id=name) for name in ids),
        cited=frozenset(map(str, row.get("gold", ()))),
        answer=" | ".join(sorted(map(str, row["answers"]))),
    )


def run(
    asked: Sequence[Retrieval], embedder: Embedder, *, policy: LookupPolicy | None = None
) -> dict[str, Any]:
    """Ask all of them and return what was served, right and wrong."""
    policy = policy or LookupPolicy()
    known = understood([each.text for each in asked], embedder)
    vectors = np.stack([known[each.text].embedding.vector for each in asked])
    stored: list[tuple[int, Entry]] = []
    hits = wrong = 0
    reasons: Counter[str] = Counter()
    for at, each in enumerate(asked):
        now = known[each.text]
        cosines = vectors[[place for place, _ in stored]] @ vectors[at] if stored else np.zeros(0)
        nearest = np.argsort(-cosines)[: policy.limit]
        candidates = [
            candidate_of(stored[n][1], min(1.0, float(cosines[n]))) for n in map(int, nearest)
        ]
        request = request_of(each.text).replace(documents=each.documents)
        found = decide(candidates, asked=now.reading, request=request, now=NOW, policy=policy)
        if isinstance(found, Hit):
            hits += 1
            wrong += int(found.entry.answer["text"] != each.answer)
        else:
            reasons[found.reason] += 1
            stored.append((at, _entry(now, each, str(at))))
    return {
        "lookups": len(asked),
        "hits": hits,
        "served_same": hits - wrong,
        "served_different": wrong,
        **error_rates(wrong=wrong, hits=hits, lookups=len(asked)),
        "reasons": dict(reasons.most_common()),
        "threshold": policy.threshold,
    }


def _entry(asked: Asked, each: Retrieval, name: str) -> Entry:
    lineage = tuple(
        Lineage(
            names=document.names,
            content=content_hash(document.text),
            raw=hashlib.sha256(document.text.encode()).hexdigest(),
            rank=rank,
            cited=document.id in each.cited,
            access=frozenset(),
        )
        for rank, document in enumerate(each.documents)
    )
    entry = entry_of(asked, each.answer, name=name)
    support = support_of(each.answer, [document.text for document in each.documents])
    return replace(entry, lineage=lineage, reading={**(entry.reading or {}), SUPPORT: support})
