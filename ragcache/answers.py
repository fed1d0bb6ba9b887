"""Between a completion, a stored entry and the answer a caller gets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from .keys import content_hash, raw_hash
from .layout import cited_labels, labels_of
from .types import (
    UNKNOWN_USAGE,
    ZERO_USAGE,
    Admit,
    Answer,
    Block,
    CacheStatus,
    Citation,
    Completion,
    Document,
    Hit,
    JsonObject,
    Layout,
    Lineage,
    Miss,
    Reject,
    Request,
    Reuse,
    Usage,
)


def labels(layout: Layout) -> dict[str, Citation]:
    """Return every label that the prompt printed."""
    return labels_of(layout)


def lineage(layout: Layout, completion: Completion) -> tuple[Lineage, ...]:
    """Return all documents an answer came from: an uncited one may have steered it too.

    Where the answer cites no label, every document counts as cited.
    """
    cited = set(cited_labels(completion.text)) & {str(b.label) for b in layout.blocks}
    return tuple(
        Lineage(
            names=document.names,
            content=content_hash(document.text),
            raw=raw_hash(document.text),
            rank=block.rank,
            cited=not cited or str(block.label) in cited,
            access=document.access,
        )
        for block in layout.blocks
        for document in block.documents
    )


def stored_form(completion: Completion, layout: Layout) -> JsonObject:
    """Return what an entry keeps of an answer: plain JSON, no object of any library."""
    usage = completion.usage
    return {
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "model": completion.model,
        "labels": _stored_labels(layout.blocks),
        "usage": {name: getattr(usage, name) for name in Usage.__slots__},
    }


def _stored_labels(blocks: Iterable[Block]) -> JsonObject:
    return {
        str(block.label): {
            "sources": list(block.sources),
            "contents": sorted({str(content_hash(d.text)) for d in block.documents}),
        }
        for block in blocks
    }


def usage_of(answer: JsonObject) -> Usage:
    """Return the usage of the call that made a stored answer."""
    known = answer.get("usage") or {}
    return Usage(**{name: known.get(name) for name in Usage.__slots__}) if known else UNKNOWN_USAGE


def from_entry(request: Request, hit: Hit, *, now: datetime, request_id: str) -> Answer:
    """Return a stored answer as this caller gets it: fresh objects, no tokens spent."""
    stored = hit.entry.answer
    text = str(stored["text"])
    completion = Completion(
        text=text,
        finish_reason=str(stored.get("finish_reason") or "stop"),
        usage=ZERO_USAGE,
        model=str(stored.get("model") or ""),
        id=f"ragcache-{request_id}",
    )
    status = CacheStatus(
        hit=hit.kind,
        ttl_s=max(0.0, (hit.entry.expire_at - now).total_seconds()),
        similarity=hit.similarity,
        certified=hit.certified,
        entry=hit.entry.id,
        age_s=max(0.0, (now - hit.entry.created_at).total_seconds()),
        detail=hit.detail,
    )
    return Answer(
        text=text,
        status=status,
        usage=ZERO_USAGE,
        citations=_citations(text, stored.get("labels") or {}, request.documents),
        documents=request.documents,
        completion=completion,
        request_id=request_id,
    )


def from_completion(
    request: Request,
    completion: Completion,
    layout: Layout,
    *,
    status: CacheStatus,
    reuse: Reuse,
    request_id: str,
    ttft_s: float | None,
) -> Answer:
    """Return a fresh answer as this caller gets it."""
    cited = set(cited_labels(completion.text))
    known = _stored_labels(block for block in layout.blocks if str(block.label) in cited)
    return Answer(
        text=completion.text,
        status=status,
        usage=completion.usage,
        citations=_citations(completion.text, known, request.documents),
        reuse=reuse,
        documents=request.documents,
        dropped=layout.dropped,
        completion=completion,
        request_id=request_id,
        ttft_s=ttft_s,
    )


def status_of(
    miss: Miss,
    verdict: Admit | Reject,
    *,
    stored: bool | None,
    store_reason: str,
    collapsed: bool,
) -> CacheStatus:
    """Return the status of a request that went forward.

    Its detail is that of the miss; else, of a stored answer, "quarantined" where it waits for a
    second voice, or "promoted" where it was that.
    """
    kept = verdict if stored and isinstance(verdict, Admit) else None
    return CacheStatus(
        fwd=miss.fwd,
        reason=miss.reason,
        detail=miss.detail or (kept.detail if kept else ""),
        ttl_s=kept.ttl_s if kept else None,
        stored=stored,
        store_reason=store_reason,
        collapsed=collapsed,
        similarity=miss.nearest,
    )


def _citations(
    text: str, known: Mapping[str, Any], documents: Sequence[Document]
) -> dict[str, Citation]:
    """Return the labels the text cites, with their places in the caller's documents."""
    cited = [label for label in cited_labels(text) if label in known]
    if not cited:
        return {}
    places: dict[str, list[int]] = {}
    for rank, document in enumerate(documents):
        places.setdefault(str(content_hash(document.text)), []).append(rank)
    return {
        label: Citation(
            label=label,
            sources=tuple(known[label]["sources"]),
            ranks=tuple(sorted(r for c in known[label]["contents"] for r in places.get(c, ()))),
        )
        for label in cited
    }
