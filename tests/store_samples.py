"""Requests and entries as the store's tests make them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from ragcache.keys import Identity, content_hash, keys_of, raw_hash, scope_of
from ragcache.protocols import Store
from ragcache.types import (
    Document,
    Entry,
    EntryId,
    Keys,
    Lineage,
    Request,
    Scope,
    Vector,
)

NOW = datetime(2031, 4, 2, 9, 14, 7, tzinfo=UTC)
IDENTITY = Identity(target="https://api.example.test", model="m", revision="r1")
_numbers = itertools.count()


def request(tenant: str, *, access: Iterable[str] = (), **fields: Any) -> Request:
    """Return a small request of the tenant."""
    return Request(
        **{"tenant": tenant, "question": "What is it?", "access": frozenset(access), **fields}
    )


def scope(asked: Request, identity: Identity = IDENTITY) -> Scope:
    """Return where the request may look and store."""
    return scope_of(asked, identity)


def keys(asked: Request, identity: Identity = IDENTITY) -> Keys:
    """Return the exact keys of the request."""
    return keys_of(asked, scope_of(asked, identity))


def unit(*values: float, dimensions: int = 8) -> Vector:
    """Return a unit vector that begins with the values."""
    vector = np.zeros(dimensions, dtype=np.float32)
    vector[: len(values)] = values
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def lineage(documents: Iterable[Document]) -> tuple[Lineage, ...]:
    """Return the lineage of an answer from the documents, all cited."""
    return tuple(
        Lineage(
            names=document.names,
            content=content_hash(document.text),
            raw=raw_hash(document.text),
            rank=rank,
            cited=True,
            access=frozenset(document.access),
        )
        for rank, document in enumerate(documents)
    )


def entry(
    asked: Request, *, ttl_s: float = 3600, identity: Identity = IDENTITY, **fields: Any
) -> Entry:
    """Return an answer to the request, stored at NOW."""
    place = scope_of(asked, identity)
    made: dict[str, Any] = {
        "id": EntryId(f"entry-{next(_numbers)}"),
        "scope": place,
        "keys": keys_of(asked, place),
        "question": asked.question,
        "answer": {"text": "It is this."},
        "lineage": lineage(asked.documents),
        "created_at": NOW,
        "expire_at": NOW + timedelta(seconds=ttl_s),
        "embedder": "E",
        "vector": unit(1.0, 0.5),
    }
    return Entry(**{**made, **fields})


async def stored(store: Store, asked: Request, **fields: Any) -> Entry:
    """Store an answer to the request as the pipeline does; return the entry."""
    made = entry(asked, **fields)
    assert await store.put(made, await store.snapshot(made.scope, asked.documents)) == ""
    return made


async def served(store: Store, asked: Request, *, now: datetime = NOW) -> list[str]:
    """Return the ids of what may be served under the request's keys."""
    found = await store.find_exact(scope(asked), keys(asked), now=now)
    return [c.entry.id for c in found if c.current and c.entry.expire_at > now]
