"""Documents that a caller retrieved by hand, told to the cache for the calls inside a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieved:
    """What was retrieved, as the caller has it (texts, documents of any framework), and for what.

    `query` is the question the documents were looked up by; "" where it is not said.
    """

    documents: tuple[Any, ...]
    query: str = ""


#: A text of a model that is longer, in characters, is no question that it condensed.
CONDENSED_CHARS_MAX = 500


def condensed_in(queries: Iterable[str]) -> str | None:
    """Return the one question among what a chain's own model wrote for its retrievers, or None.

    Several are variants of a question, and what is no question is a passage to search by.
    """
    found = {query.strip() for query in queries}
    if len(found) != 1:
        return None
    (query,) = found
    return query if query.endswith(("?", "？")) and "\n" not in query else None


_told: ContextVar[tuple[Retrieved, ...]] = ContextVar("ragcache_retrieved", default=())


@contextmanager
def documents(documents: Sequence[Any], *, query: str = "") -> Iterator[None]:
    """Tell the cache which documents the model calls inside this block were made with.

    For those who search a vector store themselves: a wrapped model cannot see that.

        found = store.similarity_search(question)
        with ragcache.documents(found, query=question):
            llm.invoke(prompt.invoke({"context": found, "question": question}))
    """
    token = _told.set((*_told.get(), Retrieved(documents=tuple(documents), query=query)))
    try:
        yield
    finally:
        _told.reset(token)


def told() -> tuple[Retrieved, ...]:
    """Return what the blocks around this call told, outermost first."""
    return _told.get()
