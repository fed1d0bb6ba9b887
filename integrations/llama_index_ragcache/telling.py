"""What the cache did, told beside answers that have no place for it.

A chat response says it in `additional_kwargs["ragcache"]`; the response of a query engine or an
agent has no room for it, and may be made of several calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_listening: ContextVar[tuple[list[dict[str, Any]], ...]] = ContextVar(
    "ragcache_li_listening", default=()
)


@contextmanager
def statuses() -> Iterator[list[dict[str, Any]]]:
    """Collect what the cache did for each call that is made inside the block, in order.

        with statuses() as told:
            response = query_engine.query("What is the demurrage fee?")
        print(told[-1]["status"])  # ragcache; hit; ttl=3600; detail=exact

    A stream is told of when it has been read. An engine's stream calls its model only then: read
    it inside the block.
    """
    told: list[dict[str, Any]] = []
    token = _listening.set((*_listening.get(), told))
    try:
        yield told
    finally:
        _listening.reset(token)


def listeners() -> tuple[list[dict[str, Any]], ...]:
    """Return who listens to the call that is made now."""
    return _listening.get()
