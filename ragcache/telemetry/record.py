"""One record for each request, made from its events. Pure.

A record holds figures, reasons, names of documents and hashes; what was asked and answered only
where the operator asked for contents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..events import Admitted, Answered, Called, Degraded, Event, Judged, LaidOut, LookedUp
from ..types import NO_REUSE, UNKNOWN_USAGE, Answer, Hit, Layout, Miss, Reject, Reuse, Usage
from . import savings
from .savings import Money, PriceOf

#: Longest text of a reason, a note or a name that is kept.
_TEXT_MAX = 200
_BLOCKS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is kept of a request.

    Args:
        status: hit_exact, hit_semantic, miss, stale or bypass.
        reason: Why it went forward, or the detail of a hit.
        nearest: Similarity of the nearest stored question, hit or not.
        predicted, cached: Tokens expected from, and served by, the target's prefix cache.
        cause: Why they differ.
        saved_input, saved_output: Tokens of the call that was spared.
        cost, uncached: US dollars; None where unknown.
        seconds: Of each stage, and of the whole (`answer`).
        blocks: Hash, characters and source of each document block, in the order of the prompt.
        head: Digest of tools and system text: it changes with every byte in them.
        notes: What the layout had to say.
        degraded: Parts of the cache that were passed by.
    """

    tenant: str
    id: str
    at: datetime
    namespace: str
    partition: str
    version: str = ""
    provider: str = ""
    model: str = ""
    status: str
    reason: str = ""
    entry: str = ""
    similarity: float | None = None
    nearest: float | None = None
    certified: bool = True
    collapsed: bool = False
    stored: bool | None = None
    store_reason: str = ""
    error: str = ""
    ttft_s: float | None = None
    input: int | None = None
    cached: int | None = None
    written: int | None = None
    output: int | None = None
    predicted: int | None = None
    cause: str = ""
    saved_input: int | None = None
    saved_output: int | None = None
    cost: float | None = None
    uncached: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    head: str = ""
    blocks: tuple[tuple[str, int, str], ...] = ()
    notes: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    principal: str = ""
    question: str = ""
    answer: str = ""

    @property
    def called(self) -> bool:
        """Whether the target was asked by this very request."""
        return "target" in self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A semantic hit that was judged, by verification or by a user."""

    tenant: str
    id: str
    at: datetime
    namespace: str
    version: str
    model: str
    entry: str
    similarity: float
    agreed: bool
    by: str
    cost: float | None = None


def status_of(looked: LookedUp | None, answer: Answer | None) -> str:
    """Return the status of a request in one word."""
    if answer is not None and answer.status.hit:
        return f"hit_{answer.status.hit}"
    if answer is not None and answer.status.fwd:
        return _FORWARD[answer.status.fwd]
    if looked is None:
        return "bypass"
    found = looked.outcome
    return f"hit_{found.kind}" if isinstance(found, Hit) else _FORWARD[found.fwd]


#: What a caller asked for (no_cache, refresh) is a bypass too.
_FORWARD = {"miss": "miss", "stale": "stale", "bypass": "bypass", "request": "bypass"}


def is_last(event: Event) -> bool:
    """Return whether nothing more is to come of this request.

    Those who call the model themselves have no target and so no provider: their lookup is all.
    """
    if isinstance(event, Answered):
        return True
    if isinstance(event, Called):
        return bool(event.error)
    return isinstance(event, LookedUp) and not event.provider


def assemble(
    events: Sequence[Event], *, at: datetime, prices: PriceOf, contents: bool = False
) -> Record:
    """Return the record of one request.

    Args:
        events: Of this request, in the order they came; at least one.
        at: When the last one came.
        prices: Of models.
        contents: Keep what was asked and answered, and by whom.
    """
    by_kind = {type(event): event for event in events}
    looked, laid = by_kind.get(LookedUp), by_kind.get(LaidOut)
    called, admitted = by_kind.get(Called), by_kind.get(Admitted)
    answered = by_kind.get(Answered)
    answer = answered.answer if isinstance(answered, Answered) else None
    last = events[-1]
    values: dict[str, Any] = {
        "tenant": last.scope.tenant,
        "id": last.request_id,
        "at": at,
        "namespace": last.scope.namespace,
        "partition": last.scope.partition,
        "version": last.version,
        "provider": last.provider,
        "status": status_of(looked if isinstance(looked, LookedUp) else None, answer),
        "seconds": _seconds(by_kind),
        "degraded": tuple(
            _short(f"{e.part}: {e.reason} {e.detail}".strip())
            for e in events
            if isinstance(e, Degraded)
        )[:8],
    }
    if isinstance(looked, LookedUp):
        values |= _of_lookup(looked)
    if isinstance(laid, LaidOut):
        values |= _of_layout(laid.layout)
    if isinstance(called, Called):
        values |= _of_call(called, prices)
    if isinstance(admitted, Admitted):
        values |= _of_admission(admitted)
    if isinstance(answered, Answered):
        values |= _of_answer(answered, values, prices)
    if contents:
        values |= _contents(last, looked, answer)
    return Record(**values)


def judgement(event: Judged, *, at: datetime, prices: PriceOf) -> Judgement:
    """Return what is kept of a judged hit; regenerating it was paid for."""
    money = savings.of_call(event.usage, prices(event.provider, event.model))
    return Judgement(
        tenant=event.scope.tenant,
        id=event.request_id,
        at=at,
        namespace=event.scope.namespace,
        version=event.version,
        model=event.model,
        entry=event.entry,
        similarity=event.similarity,
        agreed=event.agreed,
        by=event.by,
        cost=money.cost if event.usage != UNKNOWN_USAGE else None,
    )


# --- the parts of a record ---------------------------------------------------------------------


def _seconds(by_kind: dict[type[Event], Event]) -> dict[str, float]:
    named = {LookedUp: "lookup", LaidOut: "layout", Called: "target", Answered: "answer"}
    seconds = {
        name: round(by_kind[kind].seconds, 6) for kind, name in named.items() if kind in by_kind
    }
    if Admitted in by_kind:
        seconds["admission"] = round(by_kind[Admitted].seconds, 6)
    looked = by_kind.get(LookedUp)
    if isinstance(looked, LookedUp) and looked.embed_seconds:
        seconds["embed"] = round(looked.embed_seconds, 6)
    return seconds


def _of_lookup(event: LookedUp) -> dict[str, Any]:
    match event.outcome:
        case Hit() as hit:
            return {
                "reason": _short(hit.detail),
                "entry": hit.entry.id,
                "similarity": hit.similarity,
                "nearest": hit.similarity,
                "certified": hit.certified,
                "model": hit.entry.model,
            }
        case Miss() as miss:
            return {"reason": miss.reason, "nearest": miss.nearest}


def _of_layout(layout: Layout) -> dict[str, Any]:
    return {
        "predicted": layout.predicted_tokens,
        "head": _head(layout),
        "blocks": tuple(
            (str(block.hash)[:12], len(block.text), _short(next(iter(block.sources), "")))
            for block in layout.blocks[:_BLOCKS_MAX]
        ),
        "notes": tuple(_short(note) for note in layout.notes[:8]),
    }


def _head(layout: Layout) -> str:
    digest = hashlib.sha256(repr(layout.tools).encode("utf-8", "surrogatepass"))
    for message in layout.messages:
        if message.role not in ("system", "developer"):
            break
        digest.update(message.text().encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _of_call(event: Called, prices: PriceOf) -> dict[str, Any]:
    money = savings.of_call(event.usage, prices(event.provider, event.model))
    return {
        "model": event.model,
        "error": event.error,
        "ttft_s": event.ttft_s,
        **_of_usage(event.usage),
        **_of_reuse(event.reuse),
        **_of_money(money),
    }


def _of_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input": usage.input_tokens,
        "cached": usage.cached_tokens,
        "written": usage.cache_write_tokens,
        "output": usage.output_tokens,
    }


def _of_reuse(reuse: Reuse) -> dict[str, Any]:
    known = {} if reuse == NO_REUSE else {"cause": reuse.cause}
    if reuse.predicted_tokens is not None:
        known["predicted"] = reuse.predicted_tokens  # type: ignore[assignment]  # a number among texts
    return known


def _of_money(money: Money) -> dict[str, Any]:
    return {"cost": money.cost, "uncached": money.uncached}


def _of_admission(event: Admitted) -> dict[str, Any]:
    check = event.verdict.check if isinstance(event.verdict, Reject) else ""
    return {"stored": event.stored, "store_reason": _short(event.reason or check)}


def _of_answer(event: Answered, known: dict[str, Any], prices: PriceOf) -> dict[str, Any]:
    """What only the answer tells: a call that was spared by a hit or by another's call."""
    answer, status = event.answer, event.answer.status
    values: dict[str, Any] = {
        "ttft_s": answer.ttft_s,
        "collapsed": status.collapsed,
        "reason": _short(status.detail if status.hit else status.reason),
    }
    if status.hit:
        values |= {
            "entry": status.entry or "",
            "similarity": status.similarity,
            "certified": status.certified,
        }
    completion = answer.completion
    model = completion.model if completion is not None and completion.model else known.get("model")
    spared = event.saved_usage
    if status.collapsed and spared is None and completion is not None:
        spared = completion.usage
    if spared is None:
        return values
    money = savings.of_hit(spared, prices(event.provider, model or ""))
    return values | {
        "model": model or "",
        "input": 0,
        "cached": 0,
        "written": 0,
        "output": 0,
        "saved_input": spared.input_tokens,
        "saved_output": spared.output_tokens,
        **_of_money(money),
    }


def _contents(last: Event, looked: Event | None, answer: Answer | None) -> dict[str, Any]:
    return {
        "principal": last.scope.principal,
        "question": looked.question if isinstance(looked, LookedUp) else "",
        "answer": answer.text if answer is not None else "",
    }


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"
