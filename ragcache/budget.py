"""Bounds on the parts of a cache that may hang, and a breaker that stops asking them.

A bound must hold even when the network swallows packets: cancelling a database call can itself
wait for seconds. So the work runs in a task of its own, and only the waiting is bounded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class BreakerOpenError(Exception):
    """The part failed too often just now; it is not asked until its pause is over."""


@dataclass(slots=True)
class Breaker:
    """Opens after `failures` in a row; after `pause_s` one probe is let through.

    Args:
        failures: So many in a row open it.
        pause_s: So long nothing is asked.
        clock: Monotonic seconds.
    """

    failures: int = 5
    pause_s: float = 2.0
    clock: Callable[[], float] = time.monotonic
    failed: int = 0
    _closed_again_at: float = 0.0
    _probing: bool = False

    @property
    def open(self) -> bool:
        """Whether nothing is asked just now."""
        return self.failed >= self.failures and (
            self._probing or self.clock() < self._closed_again_at
        )

    def enter(self) -> None:
        """Ask for leave to try. Raises BreakerOpenError."""
        if self.open:
            raise BreakerOpenError
        self._probing = self.failed >= self.failures

    def succeeded(self) -> None:
        """Close the breaker."""
        self.failed = 0
        self._probing = False

    def fell(self) -> None:
        """Count a failure."""
        self.failed += 1
        self._probing = False
        self._closed_again_at = self.clock() + self.pause_s

    def left(self) -> None:
        """Note that a try ended without a verdict: its caller went away."""
        self._probing = False


class Bounded:
    """Runs work within seconds and remembers what it had to leave behind."""

    def __init__(self) -> None:
        self._strays: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T], *, seconds: float, breaker: Breaker) -> T:
        """Return the result of the work.

        Raises:
            TimeoutError: It did not end within its seconds; it is cancelled, not waited for.
            BreakerOpenError: It was not tried.
        """
        try:
            breaker.enter()
        except BreakerOpenError:
            work.close()
            raise
        task = asyncio.create_task(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            breaker.left()
            self._leave(task)
            raise
        if not done:
            breaker.fell()
            self._leave(task)
            raise TimeoutError
        return self._judged(task, breaker)

    @staticmethod
    def _judged(task: asyncio.Task[T], breaker: Breaker) -> T:
        if task.cancelled() or task.exception() is not None:
            breaker.fell()
        else:
            breaker.succeeded()
        return task.result()

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._strays.add(task)
        task.add_done_callback(self._forget)
        task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._strays.discard(task)
        if not task.cancelled():
            task.exception()  # it came too late to matter, and is counted by the breaker

    async def close(self, *, seconds: float = 6.0) -> None:
        """Wait for what was left behind: connections go back to their pool."""
        if self._strays:
            await asyncio.wait(set(self._strays), timeout=seconds)


class Backlog:
    """Work in the background: so much at once, so much waiting, the rest refused.

    Args:
        at_once: So many run; the store's connections are for those who wait for an answer.
        waiting: So many may wait for their turn.
    """

    def __init__(self, *, at_once: int = 4, waiting: int = 1000) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._tasks: set[asyncio.Task[Any]] = set()
        self._named: set[str] = set()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, work: Coroutine[Any, Any, T], *, name: str = "") -> asyncio.Task[T] | None:
        """Return the task that will do the work.

        None where too much is waiting, or where work of the same name waits and will do.
        """
        if name in self._named:
            work.close()
            return None
        if len(self._tasks) >= self._most:
            self.refused += 1
            work.close()
            return None
        if name:
            self._named.add(name)
        task = asyncio.create_task(self._in_turn(work, name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _in_turn(self, work: Coroutine[Any, Any, T], name: str) -> T:
        try:
            async with self._turns:
                self._named.discard(name)
                return await work
        finally:
            self._named.discard(name)
            work.close()

    async def flush(self, *, seconds: float) -> None:
        """Wait until nothing is left to do, at most so long; what is left then is cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)
