"""Many requests at once: exact entries first, the rest in the order that reuses the most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from ..keys import content_hash
from ..layout.batch import schedule
from ..layout.ordering import Item
from ..layout.plan import Count
from ..types import Answer, Request

Ask = Callable[[Request], Awaitable[Answer]]
Look = Callable[[Request], Awaitable[Answer | None]]


def order_of(requests: Sequence[Request], count: Count) -> list[int]:
    """Return the numbers of the requests in the order to send them: like next to like."""
    items = [
        [Item(key=content_hash(d.text), tokens=count(d.text)) for d in request.documents]
        for request in requests
    ]
    return [slot.request for slot in schedule(items)]


async def answered(
    requests: Sequence[Request], look: Look, ask: Ask, *, count: Count, concurrency: int
) -> AsyncGenerator[tuple[int, Answer | Exception], None]:
    """Yield each request's number with its answer, or with what its target raised.

    First all that `look` finds, then the rest in scheduled order, at most `concurrency` at a time.
    """
    left = []
    for number, request in enumerate(requests):
        stored = await look(request)
        if stored is None:
            left.append(number)
        else:
            yield number, stored
    order = [left[at] for at in order_of([requests[n] for n in left], count)]
    async for done in _in_turn(requests, order, ask, concurrency):
        yield done


async def _in_turn(
    requests: Sequence[Request], order: Sequence[int], ask: Ask, concurrency: int
) -> AsyncGenerator[tuple[int, Answer | Exception], None]:
    waiting = list(reversed(order))
    running: dict[asyncio.Task[Answer], int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < concurrency:
                number = waiting.pop()
                running[asyncio.ensure_future(ask(requests[number]))] = number
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is not None and not isinstance(error, Exception):
                    raise error
                yield running.pop(task), error or task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
