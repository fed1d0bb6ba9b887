"""One call for many equal requests across processes: whoever has the turn calls the target.

The others wait for its answer to appear in the store. Their wait is bounded: when it ends, or
when the holder of the turn dies and the turn becomes free, they call for themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from ..protocols import Store
from ..types import Hit, Miss
from .asking import Asking, Waited
from .parts import Parts

Look = Callable[[Asking], Awaitable[Hit | Miss]]


class Turns:
    """Takes turns with other processes.

    Args:
        parts: Its store knows whose turn it is.
        wait_s: Longest wait for another process's answer.
        poll_s: How often the store is asked meanwhile.
    """

    def __init__(self, parts: Parts, *, wait_s: float = 30.0, poll_s: float = 0.05) -> None:
        self._parts = parts
        self._wait_s = wait_s
        self._poll_s = poll_s

    @asynccontextmanager
    async def taken(self, asking: Asking, look: Look) -> AsyncGenerator[Hit | None, None]:
        """Hold the turn of this request, or yield the hit that another process made meanwhile."""
        store = self._parts.store
        if store is None:
            yield None
            return
        until = time.monotonic() + self._wait_s
        while True:
            async with self._turn(store, asking) as leading:
                # Looked at inside the turn: its last holder may just have stored the answer.
                found = await look(asking)
                hit = found if isinstance(found, Hit) else None
                if hit or leading or time.monotonic() > until:
                    yield hit
                    return
            await asyncio.sleep(self._poll_s)
            # Waiting for an answer is not waiting for the store: each look has a budget anew.
            asking = replace(asking, waited=Waited())

    @asynccontextmanager
    async def _turn(self, store: Store, asking: Asking) -> AsyncGenerator[bool, None]:
        """Ask for the turn within the store's budget; who gets no word in time goes ahead."""
        turn = store.alone(asking.scope, asking.keys.exact)
        entering = asyncio.ensure_future(turn.__aenter__())
        try:
            patience_s = max(0.0, self._parts.left_s(asking))
            with self._parts.waiting(asking):
                done, _ = await asyncio.wait({entering}, timeout=patience_s)
            yield entering.result() if done else True
        finally:
            # However late the turn comes, it is given back; nobody waits for that.
            self._parts.later(_leave(turn, entering))


async def _leave(turn: AbstractAsyncContextManager[bool], entering: asyncio.Future[bool]) -> None:
    await entering
    await turn.__aexit__(None, None, None)
