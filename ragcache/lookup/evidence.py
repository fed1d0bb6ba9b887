"""Whether the documents retrieved now still carry the stored answer."""

from __future__ import annotations

from collections.abc import Sequence

from ..keys import content_hash
from ..types import Document, Lineage


def supporting(lineage: Sequence[Lineage], *, depth: int) -> tuple[Lineage, ...]:
    """Return the documents an answer rests on: those it cites, else its best-ranked ones."""
    cited = tuple(part for part in lineage if part.cited)
    return cited or tuple(sorted(lineage, key=lambda part: part.rank)[:depth])


def access_reason(lineage: Sequence[Lineage], access: frozenset[str]) -> str:
    """Return "access" unless the asker holds every tag of every document used, cited or not.

    An uncited document may have steered the answer all the same.
    """
    return "" if all(part.access <= access for part in lineage) else "access"


def evidence_reason(
    lineage: Sequence[Lineage], documents: Sequence[Document], *, depth: int
) -> str:
    """Return why the documents retrieved now do not carry the answer, or "".

    Every supporting document must be among them with the same content, and no document that
    the answer has not seen may stand before one of them: better evidence than the answer had.
    A request that brings no documents is asked before retrieval and is not held to this.
    """
    if not documents:
        return ""
    hashes = [content_hash(document.text) for document in documents]
    places = {content: at for at, content in reversed(list(enumerate(hashes)))}
    needed = supporting(lineage, depth=depth)
    missing = [part for part in needed if part.content not in places]
    if missing:
        names = {name for document in documents for name in document.names}
        changed = any(names.intersection(part.names) for part in missing)
        return "document_changed" if changed else "evidence_missing"
    last = max((places[part.content] for part in needed), default=len(hashes))
    seen = {part.content for part in lineage}
    return "new_evidence" if any(content not in seen for content in hashes[:last]) else ""
