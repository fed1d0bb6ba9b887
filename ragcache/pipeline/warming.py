"""Of many cold requests over the same blocks, one goes ahead; the others find its prefix warm.

Off by default: it trades the wait for one first token against computing the prefix many times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from ..types import Layout
from .asking import Asking


class Warming:
    """Lets one cold request over the same blocks go ahead.

    Args:
        wait_s: Longest wait for the first token of the one ahead; 0 switches this off.
    """

    def __init__(self, *, wait_s: float) -> None:
        self._wait_s = wait_s
        self._cold: dict[tuple[str, ...], asyncio.Event] = {}

    def ahead(self, asking: Asking, layout: Layout) -> AbstractAsyncContextManager[asyncio.Event]:
        """Enter in turn; set the event at the first token, or leave, to let the others go."""
        if not self._wait_s or not layout.blocks:
            return nullcontext(asyncio.Event())
        return self._in_turn((*asking.trust_group, *(str(block.hash) for block in layout.blocks)))

    @asynccontextmanager
    async def _in_turn(self, key: tuple[str, ...]) -> AsyncGenerator[asyncio.Event, None]:
        warm = asyncio.Event()
        before = self._cold.get(key)
        if before is not None:
            await _within(before, self._wait_s)
            yield warm
            return
        self._cold[key] = warm
        try:
            yield warm
        finally:
            warm.set()
            del self._cold[key]


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return  # the one ahead is slow: going on cold is no worse than not waiting
