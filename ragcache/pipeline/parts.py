"""The cache's own parts, store, embedder and verifier, held so that none can hurt a request.

Every use is bounded in time, counted by a breaker, and ends in a value or in a `Miss` that says
why. Two kinds of fault are never passed by: a store that mixes tenants, and a wrong schema.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from ..budget import Backlog, Bounded, Breaker, BreakerOpenError
from ..errors import IsolationError, StoreUnavailableError, VerifierError
from ..events import Degraded, Event, Hooks, Judged
from ..keys import fold, question_of
from ..protocols import Embedder, Store, Verifier
from ..types import Candidate, Embedding, EntryId, Miss, Usage
from .asking import Asking, Budgets

_log = logging.getLogger("ragcache")
#: So much of a budget is left for the loop to wake up and to go on.
_LATE_S = 0.004
T = TypeVar("T")


class Parts:
    """Store, embedder and verifier under budgets and breakers, and work in the background."""

    def __init__(
        self,
        *,
        store: Store | None,
        embedder: Embedder | None,
        budgets: Budgets,
        hooks: Hooks,
        verifier: Verifier | None = None,
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.verifier = verifier
        self.budgets = budgets
        self.hooks = hooks
        self._bounded = Bounded()
        self._store_breaker = Breaker()
        self._embed_breaker = Breaker()
        self._verify_breaker = Breaker()
        self._background: set[asyncio.Task[Any]] = set()
        self._backlog = Backlog()

    async def open(self) -> None:
        """Get all parts ready. A store that is down leaves caching off until it is back.

        Raises:
            ConfigError: The embedding model or the verifier cannot be loaded.
            StoreError: The store is there but must not be used: wrong schema or isolation.
        """
        if self.embedder is not None:
            await self.embedder.open()
        if self.verifier is not None:
            await self.verifier.open()
        if self.store is None:
            return
        try:
            await self.store.open()
        except (StoreUnavailableError, OSError) as error:
            _log.warning(
                "the %s store is down, caching is off until it is back: %s", self.store.name, error
            )

    async def settled(self, *, seconds: float = 5.0) -> None:
        """Wait until nothing is left to do in the background, at most so long."""
        until_s = time.monotonic() + seconds
        while pending := set(self._background):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            await asyncio.wait(pending, timeout=left_s)

    async def close(self) -> None:
        """Flush what is under way and give everything back."""
        await self.settled()
        await self._backlog.flush(seconds=1.0)
        await self._bounded.close()
        if self.store is not None:
            await self.store.close()
        if self.embedder is not None:
            await self.embedder.close()
        if self.verifier is not None:
            await self.verifier.close()

    # --- bounded use ---------------------------------------------------------------------------

    async def stored(self, asking: Asking, work: Coroutine[Any, Any, T]) -> T | Miss:
        """Await the store within what is left of the request's budget for it."""
        left_s = self.left_s(asking)
        if left_s <= 0:
            work.close()
            return Miss(reason="store_timeout", fwd="bypass")
        bounded = self._bounded.run(work, seconds=left_s, breaker=self._store_breaker)
        with self.waiting(asking):
            return await self._passed_by(asking, bounded, part="store")

    @property
    def store_is_away(self) -> bool:
        """Whether the store has failed so often just now that it is not asked."""
        return self._store_breaker.open

    def left_s(self, asking: Asking) -> float:
        """Return how long a request may still wait for the store: a timer that ends a wait is late,
        and what comes after it takes its time, too.
        """
        budget_s = self.budgets.store_s
        return budget_s - min(_LATE_S, 0.1 * budget_s) - asking.waited.store_s

    @contextmanager
    def waiting(self, asking: Asking) -> Iterator[None]:
        """Count the time inside as waited for the store."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            asking.waited.store_s += time.perf_counter() - began_s

    async def embedded(self, asking: Asking, text: str) -> Embedding | Miss:
        """Await the embedding of a text within its budget.

        The text is folded first, as a reading of it is: token vectors belong to its spelling.
        """
        if self.embedder is None:
            return Miss(reason="no_embedder")
        bounded = self._bounded.run(
            _embeddings(self.embedder, fold(text)),
            seconds=self.budgets.embed_s,
            breaker=self._embed_breaker,
        )
        found = await self._passed_by(asking, bounded, part="embed")
        if isinstance(found, Miss):
            return found
        if fault := _fault(found[0], self.embedder):
            self.degraded(asking, "embed", "bad_vector", fault)
            return Miss(reason="bad_vector", fwd="bypass", detail=fault)
        return found[0]

    async def verified(
        self, asking: Asking, embedding: Embedding, candidates: Sequence[Candidate]
    ) -> Sequence[float]:
        """Await the verifier's scores of candidates within the budget; () where it has none."""
        if self.verifier is None:
            return ()
        bounded = self._bounded.run(
            _scores(self.verifier, question_of(asking.request), embedding, candidates),
            seconds=self.budgets.verify_s,
            breaker=self._verify_breaker,
        )
        found = await self._passed_by(asking, bounded, part="verify")
        return () if isinstance(found, Miss) else found

    async def _passed_by(
        self, asking: Asking, work: Coroutine[Any, Any, T], *, part: str
    ) -> T | Miss:
        try:
            return await work
        except IsolationError:
            raise
        except BreakerOpenError:
            return Miss(reason=f"{part}_breaker_open", fwd="bypass")
        except TimeoutError:
            self.degraded(asking, part, "timeout")
            return Miss(reason=f"{part}_timeout", fwd="bypass")
        except Exception as error:  # noqa: BLE001 -- a broken cache never breaks a request; the event tells
            self.degraded(asking, part, "error", f"{type(error).__name__}: {error}")
            return Miss(reason=f"{part}_error", fwd="bypass")

    # --- events and background -----------------------------------------------------------------

    def degraded(self, asking: Asking, part: str, reason: str, detail: str = "") -> None:
        """Say that a part failed and was passed by."""
        self.emit(Degraded, asking, None, part=part, reason=reason, detail=detail)

    def judged(
        self,
        asking: Asking,
        entry: EntryId,
        similarity: float,
        *,
        agreed: bool,
        usage: Usage,
        by: str,
    ) -> None:
        """Tell a verdict on an entry, served or near, and what it cost."""
        self.emit(
            Judged,
            asking,
            None,
            entry=entry,
            similarity=similarity,
            agreed=agreed,
            usage=usage,
            by=by,
            model=asking.asked.model,
        )

    def emit(self, kind: type[Event], asking: Asking, began_s: float | None, **fields: Any) -> None:
        """Emit an event of a request; `began_s` is when its stage began, by perf_counter."""
        if not self.hooks.heard:
            return
        seconds = 0.0 if began_s is None else time.perf_counter() - began_s
        self.hooks.emit(
            kind(
                request_id=asking.request_id,
                scope=asking.scope,
                seconds=seconds,
                version=asking.request.version,
                provider=asking.asked.provider,
                **fields,
            )
        )

    def later(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do work in the background at once; `close` waits for it."""
        return self._kept(asyncio.create_task(work))

    def queued(self, work: Coroutine[Any, Any, T], *, name: str = "") -> asyncio.Task[T] | None:
        """Do work with the store in the background, in turn; `close` waits for it.

        None where too much is waiting, where work of the same name waits and will do, or where
        the store has failed too often just now.
        """
        if self.store_is_away:
            work.close()
            return None
        task = self._backlog.add(work, name=name)
        return None if task is None else self._kept(task)

    def _kept(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        self._background.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.warning("work in the background failed: %s", task.exception())


def _fault(embedding: Embedding, embedder: Embedder) -> str:
    """Return what is wrong with a vector: in Postgres, NaN is nearer than every number."""
    vector = embedding.vector
    if vector.size != embedder.dimensions:
        return f"{vector.size} dimensions instead of {embedder.dimensions}"
    length = float(np.linalg.norm(vector))
    return "" if np.isfinite(length) and length > 0 else f"length {length}"


async def _scores(
    verifier: Verifier, asked: str, embedding: Embedding, candidates: Sequence[Candidate]
) -> Sequence[float]:
    found = await verifier.opinions(asked, embedding, candidates)
    if len(found) != len(candidates):
        raise VerifierError(f"{len(found)} scores for {len(candidates)} candidates")
    return found


async def _embeddings(embedder: Embedder, text: str) -> Sequence[Embedding]:
    return await embedder.embed([text])
