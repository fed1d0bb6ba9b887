"""Recorded retrievals asked one after another: only misses are stored, documents as retrieved.

A request is `{"query", "ids", "answers"}`, with `gold` the ids of the documents that carry the
answer; a document is `{"id", "text"}`. An answer served is right where both questions have the
same answers.

Afterwards every question is asked again in other words, with what BM25 finds for those; and once
more after its answer has gone from the documents, where whatever is served is stale. All of it is
done with the checks of evidence and without: what each of them removes is told, right and wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..keys import content_hash, raw_hash
from ..lookup import SUPPORT, LookupPolicy, decide, support_of
from ..protocols import Embedder
from ..types import Document, Entry, Hit, Lineage, Miss
from .questions import (
    NOW,
    Asked,
    candidate_of,
    entry_of,
    error_rates,
    request_of,
    share,
    understood,
)
from .retrieval import Bm25
from .rewording import reworded

#: What is checked beside the question: nothing, that documents are the same, and the answer's
#: own numbers, names and quotations in them.
CHECKS = ("none", "documents", "support")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """A question, the documents that were found for it, best first, and its answer."""

    text: str
    documents: tuple[Document, ...]
    cited: frozenset[str]
    answers: frozenset[str]

    @property
    def answer(self) -> str:
        """The answers as one text: equal where all are."""
        return " | ".join(sorted(self.answers))


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
    if "query" not in row or "answers" not in row or not all(name in texts for name in ids):
        raise ConfigError(f'request {at} is none: give {{"query", "ids", "answers"}}')
    return Retrieval(
        text=str(row["query"]),
        documents=tuple(Document(text=texts[name], id=name) for name in ids),
        cited=frozenset(map(str, row.get("gold", ()))),
        answers=frozenset(map(str, row["answers"])),
    )


def run(
    asked: Sequence[Retrieval],
    embedder: Embedder,
    *,
    policy: LookupPolicy | None = None,
    cited: bool = True,
) -> dict[str, Any]:
    """Ask all of them, then again in other words; return what was served, right and wrong.

    Args:
        asked: As `asked_of` makes them.
        embedder: Local ones are used in this thread.
        policy: The shipped one where none is given.
        cited: Stored answers cite the documents that carry them; else they are taken to rest on
            the best-ranked ones.
    """
    policy = policy or LookupPolicy()
    again = _reworded(asked)
    changed = [each for one in again if (each := _without_answer(one)) is not None]
    known = understood([each.text for each in (*asked, *again)], embedder)
    first = asked if cited else [replace(each, cited=frozenset()) for each in asked]
    found: dict[str, dict[str, _Counts]] = {"questions": {}, "reworded": {}, "changed": {}}
    for check in CHECKS if policy.evidence else CHECKS[:1]:
        cache = _Cache(known, policy, check)
        found["questions"][check] = cache.ask(first, store=True)
        found["reworded"][check] = cache.ask(again)
        found["changed"][check] = cache.ask(changed)
    return _told(found, policy, cited=cited)


# --- the same in other words, and after a change -----------------------------------------------


def _reworded(asked: Sequence[Retrieval]) -> list[Retrieval]:
    """Every question as people also put it, with as many documents, found for that."""
    documents = list({one.text: one for each in asked for one in each.documents}.values())
    ranked = Bm25([one.text for one in documents])
    return [
        replace(
            each,
            text=text,
            documents=tuple(documents[at] for at in ranked.best(text, len(each.documents))),
        )
        for each in asked
        for _, text in reworded(each.text)
    ]


def _without_answer(asked: Retrieval) -> Retrieval | None:
    """The same after the answer has gone from the documents; None where it never was there."""
    words = "|".join(re.escape(text) for text in asked.answers if text)
    gone = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE) if words else None
    documents = tuple(
        replace(one, text=gone.sub("…", one.text)) if gone else one for one in asked.documents
    )
    if documents == asked.documents:
        return None
    return replace(asked, documents=documents, answers=frozenset())


# --- the cache ---------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Counts:
    lookups: int = 0
    same: int = 0
    different: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return what was served, as plain JSON values."""
        return {
            "lookups": self.lookups,
            "served_same": self.same,
            "served_different": self.different,
            "served_same_share": share(self.same, self.lookups),
        }


class _Cache:
    """Stored answers, and one of the ways in which they are checked."""

    def __init__(self, known: Mapping[str, Asked], policy: LookupPolicy, check: str) -> None:
        self._known = known
        self._policy = policy if check != "none" else replace(policy, evidence=False)
        self._supported = check == "support"
        self._entries: list[Entry] = []
        self._vectors = np.zeros((len(known), _dimensions(known)), dtype=np.float32)

    def ask(self, asked: Sequence[Retrieval], *, store: bool = False) -> _Counts:
        """Ask one after another; store what is not served where that is wanted."""
        counts = _Counts(lookups=len(asked))
        for each in asked:
            found = self._lookup(each)
            if isinstance(found, Miss):
                counts.reasons[found.reason] += 1
            elif found.entry.answer["text"] == each.answer:
                counts.same += 1
            else:
                counts.different += 1
            if store and isinstance(found, Miss):
                self._store(each)
        return counts

    def _lookup(self, each: Retrieval) -> Hit | Miss:
        now, stored = self._known[each.text], len(self._entries)
        cosines = self._vectors[:stored] @ now.embedding.vector
        nearest = map(int, np.argsort(-cosines)[: self._policy.limit])
        return decide(
            [candidate_of(self._entries[at], min(1.0, float(cosines[at]))) for at in nearest],
            asked=now.reading,
            request=request_of(each.text).replace(documents=each.documents),
            now=NOW,
            policy=self._policy,
        )

    def _store(self, each: Retrieval) -> None:
        at, asked = len(self._entries), self._known[each.text]
        self._vectors[at] = asked.embedding.vector
        entry = entry_of(asked, each.answer, name=str(at))
        reading = {**(entry.reading or {})}
        if self._supported:
            texts = [document.text for document in each.documents]
            reading[SUPPORT] = support_of(each.answer, texts)
        self._entries.append(replace(entry, lineage=_lineage(each), reading=reading))


def _dimensions(known: Mapping[str, Asked]) -> int:
    return next((len(each.embedding.vector) for each in known.values()), 0)


def _lineage(each: Retrieval) -> tuple[Lineage, ...]:
    return tuple(
        Lineage(
            names=document.names,
            content=content_hash(document.text),
            raw=raw_hash(document.text),
            rank=rank,
            cited=document.id in each.cited,
            access=frozenset(),
        )
        for rank, document in enumerate(each.documents)
    )


# --- what is told ------------------------------------------------------------------------------


def _told(
    found: Mapping[str, Mapping[str, _Counts]], policy: LookupPolicy, *, cited: bool
) -> dict[str, Any]:
    questions, reworded_ = (list(found[name].values())[-1] for name in ("questions", "reworded"))
    hits = questions.same + questions.different
    return {
        "lookups": questions.lookups,
        "hits": hits,
        "served_same": questions.same,
        "served_different": questions.different,
        **error_rates(wrong=questions.different, hits=hits, lookups=questions.lookups),
        "reworded_served_share": share(reworded_.same, reworded_.lookups),
        "cited": cited,
        "threshold": policy.threshold,
        "reasons": dict(questions.reasons.most_common()),
        "checks": {
            name: {check: counts.as_json() for check, counts in by_check.items()}
            for name, by_check in found.items()
        },
        "support_removes": {name: _removed(by_check) for name, by_check in found.items()},
    }


def _removed(by_check: Mapping[str, _Counts]) -> dict[str, int]:
    """How many hits the last check takes away from those before it, right ones and wrong ones."""
    before, after = by_check.get("documents", _Counts()), by_check.get("support", _Counts())
    return {
        "served_same": before.same - after.same,
        "served_different": before.different - after.different,
    }
