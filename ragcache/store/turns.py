"""Whose turn it is among several processes: the part that is the same on every server."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ..keys import encode
from ..types import Scope

T = TypeVar("T")


def turn_digest(scope: Scope, key: str) -> bytes:
    """Return what names a turn: a hash of the whole scope and the key, framed.

    Turns are not among a tenant's rows: two tenants, or two principals with private entries, must
    never wait for each other's call.
    """
    framed = encode(
        ["ragcache/lock/1", scope.tenant, scope.group, scope.namespace, scope.partition, key]
    )
    return hashlib.sha256(framed).digest()


class Turns(ABC):
    """The turns that this process has.

    Args:
        wait_s: Longest time a caller waits for the server's word, whatever the network does.
    """

    def __init__(self, *, wait_s: float) -> None:
        self._wait_s = wait_s
        self._tasks: set[asyncio.Task[Any]] = set()

    @abstractmethod
    async def _take(self, scope: Scope, key: str) -> bool | None:
        """Return whether the turn was taken; None where the server cannot be asked."""

    @abstractmethod
    async def _give(self, scope: Scope, key: str) -> None:
        """Give a turn back that was taken."""

    @asynccontextmanager
    async def alone(self, scope: Scope, key: str) -> AsyncIterator[bool]:
        """Hold the turn of this key, if nobody has it; yields whether the caller may go ahead.

        Yields True as well where the server cannot be asked in time: a second call is better
        than none.
        """
        taking = self._spawn(self._take(scope, key))
        try:
            done, _ = await asyncio.wait({taking}, timeout=self._wait_s)
            yield taking.result() is not False if done else True
        finally:
            # In a task of its own: a caller who is cancelled here leaves no turn taken.
            giving = self._spawn(self._give_late(scope, key, taking))
            if taking.done():
                await asyncio.shield(giving)

    async def _give_late(self, scope: Scope, key: str, taking: asyncio.Task[bool | None]) -> None:
        """Give back what `taking` got, however late it got it."""
        if await taking:
            await self._give(scope, key)

    async def close(self) -> None:
        """End what is under way."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
