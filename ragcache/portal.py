"""One background loop for the synchronous doors, and a way in from any other loop.

A cache lives on one event loop: its pool, its flights and its batches belong to it. Frameworks
call from plain threads, from threads whose own loop is running, and from loops that come and
go. They all enter here; only the target runs where the caller is.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any, Self, TypeAlias, TypeVar

from .errors import ConfigError
from .pipeline import Pipeline
from .protocols import Target
from .types import Answer, Call, Chunk, Completion, Request

T = TypeVar("T")
_END = object()


class Bridge:
    """The ways into an open cache from outside its loop.

    Args:
        cache: The open cache.
        loop: The loop it lives on, which runs in a thread other than the caller's.
    """

    def __init__(self, cache: Pipeline, loop: asyncio.AbstractEventLoop) -> None:
        self.cache = cache
        self.loop = loop

    # --- from a thread -------------------------------------------------------------------------

    def answer(self, request: Request, *, target: Target | None = None) -> Answer:
        """Return the answer; blocks this thread."""
        return self._run(self.cache.answer(request, target=target))

    def stream(
        self, request: Request, *, target: Target | None = None
    ) -> Generator[Chunk, None, None]:
        """Yield the answer in pieces; blocks this thread between them."""
        chunks = self.cache.stream(request, target=target)
        try:
            while True:
                chunk = self._run(_next(chunks))
                if chunk is _END:
                    return
                yield chunk
        finally:
            self._run(chunks.aclose())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work on the cache's own loop, for operators; blocks this thread."""
        return self._run(work)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._submit(work).result()

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return submit(self.loop, work)

    # --- from another loop ---------------------------------------------------------------------

    async def aanswer(
        self, request: Request, *, target: Target | None = None, here: bool = True
    ) -> Answer:
        """Return the answer to a caller on a loop of its own.

        The target runs on that loop too, or where not `here` on the cache's own.
        """
        there = _placed(target, here=here)
        return await asyncio.wrap_future(self._submit(self.cache.answer(request, target=there)))

    async def astream(
        self, request: Request, *, target: Target | None = None, here: bool = True
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the answer in pieces to a caller on a loop of its own; `here` as in `aanswer`."""
        there = _placed(target, here=here)
        chunks = self.cache.stream(request, target=there)
        try:
            while True:
                chunk = await asyncio.wrap_future(self._submit(_next(chunks)))
                if chunk is _END:
                    return
                yield chunk
        finally:
            await asyncio.wrap_future(self._submit(chunks.aclose()))


class Portal(Bridge):
    """A cache with a loop of its own, in a thread of its own.

    Args:
        make: Makes the cache, in the thread where it will live.

    Raises:
        RagCacheError: Whatever making or opening the cache raises.
    """

    def __init__(self, make: Callable[[], Pipeline]) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="ragcache-portal", daemon=True
        )
        self._thread.start()
        try:
            super().__init__(self._run(self._opened(make)), self.loop)
        except BaseException:
            self._stop()
            raise

    @staticmethod
    async def _opened(make: Callable[[], Pipeline]) -> Pipeline:
        cache = make()
        await cache.start()
        return cache

    def __enter__(self) -> Self:
        """Enter."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Finish what is under way, close the cache and end the thread."""
        if self._thread.is_alive():
            self._run(self.cache.close())
            self._stop()

    def _stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)
        self.loop.close()


def submit(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on another thread's loop, in the context of the caller."""
    return asyncio.run_coroutine_threadsafe(work, loop)


def _placed(target: Target | None, *, here: bool) -> Target | None:
    if target is None or not here:
        return target
    return _Elsewhere(target, asyncio.get_running_loop())


async def _next(chunks: AsyncGenerator[Chunk, None]) -> Any:
    return await anext(chunks, _END)


class _Elsewhere:
    """A target that runs on its caller's loop, whose clients are bound to that loop."""

    def __init__(self, target: Target, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._loop = loop
        self.provider = target.provider
        self.name = target.name
        self.model = target.model

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer."""
        return await asyncio.wrap_future(submit(self._loop, self._target.complete(call)))

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces."""
        chunks = self._target.stream(call)
        try:
            while True:
                chunk = await asyncio.wrap_future(submit(self._loop, _step(chunks)))
                if chunk is _END:
                    return
                yield chunk
        finally:
            with contextlib.suppress(AttributeError):  # a plain iterator has nothing to close
                closing: Any = chunks
                await asyncio.wrap_future(submit(self._loop, closing.aclose()))


async def _step(chunks: AsyncIterator[Chunk]) -> Any:
    return await anext(chunks, _END)


# --- for adapters of frameworks ----------------------------------------------------------------

#: What `wrap` takes: `ragcache.connect(...)`, or a cache opened with `async with`.
AnyCache: TypeAlias = Bridge | Pipeline


class Doors:
    """Finds the way in.

    Args:
        cache: A portal with its own loop, or a cache that lives on the loop running now.

    Raises:
        ConfigError: The cache is neither.
    """

    def __init__(self, cache: AnyCache) -> None:
        if not isinstance(cache, Bridge | Pipeline):
            raise ConfigError(
                f"cache is a {type(cache).__name__}: pass ragcache.connect(settings), or a cache "
                "opened with 'async with RagCache.open(settings)'"
            )
        self._cache = cache
        self._loop = cache.loop if isinstance(cache, Bridge) else _running()

    @property
    def target(self) -> Target | None:
        """The cache's own target."""
        return (self._cache.cache if isinstance(self._cache, Bridge) else self._cache).target

    def from_thread(self) -> Bridge | None:
        """Return the way in for a call that blocks; None where it would wait for itself."""
        loop = self._loop
        if loop is None or not loop.is_running() or _running() is loop:
            return None
        return self._cache if isinstance(self._cache, Bridge) else Bridge(self._cache, loop)

    def blocks_a_loop(self) -> bool:
        """Whether a call that blocks here keeps a loop from running."""
        return _running() is not None

    def from_loop(self) -> Pipeline | Bridge | None:
        """Return the way in for a call that awaits; None where the cache's loop has ended."""
        if self._loop is None:
            self._loop = _running()
        cache = self._cache.cache if isinstance(self._cache, Bridge) else self._cache
        if self._loop is _running():
            return cache
        if self._loop is None or not self._loop.is_running():
            return None
        return self._cache if isinstance(self._cache, Bridge) else Bridge(cache, self._loop)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
