"""Questions as the benches of the answer cache use them: read, embedded, stored as entries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..keys import fold
from ..lookup import Reading, fixed_upper, read
from ..protocols import Embedder
from ..types import (
    Candidate,
    Embedding,
    Entry,
    EntryId,
    Fingerprint,
    Keys,
    PrincipalId,
    Request,
    Scope,
    TenantId,
)

#: The moment of every benched lookup: nothing here expires.
NOW = datetime(2030, 1, 1, tzinfo=UTC)
_SCOPE = Scope(
    tenant=TenantId("bench"),
    principal=PrincipalId("bench"),
    group="tenant",
    namespace="default",
    partition=Fingerprint("0" * 64),
)
_KEYS = Keys(exact=Fingerprint("0" * 64), normal=Fingerprint("0" * 64))
_BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question, embedded and read."""

    text: str
    embedding: Embedding
    reading: Reading


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file.

    Raises:
        ConfigError: The file cannot be read, or a line is no JSON object.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    return [_row(line, f"{path}, line {at}") for at, line in enumerate(lines, 1) if line.strip()]


def _row(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is no JSON object")
    return row


def understood(texts: Iterable[str], embedder: Embedder) -> dict[str, Asked]:
    """Return every question embedded and read, once each."""
    unique = sorted(set(texts), key=len)
    found: dict[str, Asked] = {}
    for start in range(0, len(unique), _BATCH):
        batch = unique[start : start + _BATCH]
        for text, embedding in zip(batch, embedded(batch, embedder), strict=True):
            found[text] = Asked(text=text, embedding=embedding, reading=read(text, embedding))
    return found


def embedded(texts: Sequence[str], embedder: Embedder) -> Sequence[Embedding]:
    """Return the embeddings of folded texts, in this thread where the embedder can."""
    folded = [fold(text) or " " for text in texts]
    now = getattr(embedder, "embed_now", None)
    if now is not None:
        result: Sequence[Embedding] = now(folded)
        return result
    return asyncio.run(_awaited(embedder, folded))


async def _awaited(embedder: Embedder, texts: Sequence[str]) -> Sequence[Embedding]:
    return await embedder.embed(texts)


def entry_of(asked: Asked, answer: str, *, name: str) -> Entry:
    """Return a stored answer to a question."""
    return Entry(
        id=EntryId(name),
        scope=_SCOPE,
        keys=_KEYS,
        question=asked.text,
        answer={"text": answer},
        lineage=(),
        created_at=NOW - timedelta(hours=1),
        expire_at=NOW + timedelta(days=1),
        reading=asked.reading.as_json(),
    )


def request_of(text: str) -> Request:
    """Return the request that asks a question without documents."""
    return Request(tenant="bench", question=text, sharing="tenant")


def candidate_of(entry: Entry, similarity: float) -> Candidate:
    """Return an entry as a store hands it over."""
    return Candidate(entry=entry, similarity=similarity)


def cosine(one: Asked, other: Asked) -> float:
    """Return the cosine similarity of two questions, at most 1."""
    return min(1.0, float(one.embedding.vector @ other.embedding.vector))


def error_rates(*, wrong: int, hits: int, lookups: int) -> dict[str, float]:
    """Return wrong of all and wrong of hits, each with its upper bound at 95 %."""
    return {
        "wrong_all": share(wrong, lookups),
        "wrong_all_upper": round(fixed_upper(wrong, lookups), 6),
        "wrong_hits": share(wrong, hits),
        "wrong_hits_upper": round(fixed_upper(wrong, hits), 6),
    }


def share(part: int, whole: int) -> float:
    """Return a part of a whole, 0 of nothing."""
    return round(part / whole, 6) if whole else 0.0


def percentiles(seconds: Sequence[float]) -> Mapping[str, float]:
    """Return p50, p95, p99 and the mean in milliseconds."""
    if not seconds:
        return {"p50": 0.0, "p95": 0.0, "p99": 0.0, "mean": 0.0}
    ms = np.asarray(seconds) * 1e3
    p50, p95, p99 = (float(p) for p in np.percentile(ms, (50, 95, 99)))
    return {
        "p50": round(p50, 3),
        "p95": round(p95, 3),
        "p99": round(p99, 3),
        "mean": round(float(ms.mean()), 3),
    }
