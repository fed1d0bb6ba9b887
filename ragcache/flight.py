"""One call for many equal requests.

The call runs in a task of its own, so that nobody who waits for it owns it: the first caller may
leave and the others are still answered. When nobody is left, the call is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Broadcast(Generic[T]):
    """Items of one running call, replayed from the first to everybody who joins."""

    def __init__(self, source: AsyncIterator[T]) -> None:
        self.items: list[T] = []
        self.error: BaseException | None = None
        self.done = False
        self.listeners = 0
        self._waiting: list[asyncio.Future[None]] = []
        self.task = asyncio.create_task(self._run(source))

    async def _run(self, source: AsyncIterator[T]) -> None:
        try:
            async for item in source:
                self.items.append(item)
                self._wake()
        except BaseException as error:
            self.error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self.done = True
            self._wake()

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def more(self, seen: int) -> bool:
        """Wait until there are more items than were seen; False where none will come.

        Raises what the call raised, once all its items were seen.
        """
        while len(self.items) <= seen and not self.done:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        if len(self.items) > seen:
            return True
        if isinstance(self.error, Exception):
            raise self.error
        if self.error is not None:
            raise asyncio.CancelledError
        return False


class Flight(Generic[T]):
    """Running calls by key. A key must hold the whole scope: nothing crosses it."""

    def __init__(self) -> None:
        self._running: dict[str, _Broadcast[T]] = {}

    def __len__(self) -> int:
        return len(self._running)

    def join(
        self, key: str, start: Callable[[], AsyncIterator[T]]
    ) -> tuple[AsyncGenerator[T, None], bool]:
        """Return the items of the call under this key, and whether it was running already."""
        broadcast = self._running.get(key)
        if broadcast is not None and broadcast.done:  # answered: who asks after that asks anew
            broadcast = None
        joined = broadcast is not None
        if broadcast is None:
            broadcast = self._running[key] = _Broadcast(start())
            broadcast.task.add_done_callback(lambda _: self._forget(key, broadcast))
        broadcast.listeners += 1
        return self._follow(key, broadcast), joined

    async def _follow(self, key: str, broadcast: _Broadcast[T]) -> AsyncGenerator[T, None]:
        at = 0
        try:
            while at < len(broadcast.items) or await broadcast.more(at):
                yield broadcast.items[at]
                at += 1
        finally:
            broadcast.listeners -= 1
            if not broadcast.listeners and not broadcast.done:
                self._forget(key, broadcast)
                broadcast.task.cancel()

    def _forget(self, key: str, broadcast: _Broadcast[T] | None) -> None:
        if self._running.get(key) is broadcast:
            del self._running[key]

    async def close(self) -> None:
        """Cancel what still runs and wait for it."""
        tasks = [broadcast.task for broadcast in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
