"""Many requests at once: exact entries first, the rest in the order that reuses the most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from ..layout import LayoutPolicy
from ..layout.batch import schedule
from ..layout.blocks import make_blocks
from ..layout.ordering import Item
from ..layout.plan import Count
from ..types import Answer, Fingerprint, Request

#: Blocks in the order to print them; None leaves it to the policy.
Wanted = tuple[Fingerprint, ...] | None
Ask = Callable[[Request, Wanted], Awaitable[Answer]]
Look = Callable[[Request], Awaitable[Answer | None]]


def order_of(
    requests: Sequence[Request], *, policy: LayoutPolicy, count: Count
) -> list[tuple[int, Wanted]]:
    """Return the numbers of the requests in the order to send them, each with that of its blocks.

    Like next to like. Prompts that others formatted are put in turn, and ordered when they are
    sent.
    """
    items = [
        [Item(b.hash, count(b.text)) for b in make_blocks(request.documents, policy=policy)]
        for request in requests
    ]
    free = policy.ordering == "prefix_tree"
    return [
        (
            slot.request,
            tuple(items[slot.request][at].key for at in slot.order)
            if free and requests[slot.request].formatted is None
            else None,
        )
        for slot in schedule(items, policy=policy)
    ]


async def answered(
    requests: Sequence[Request],
    look: Look,
    ask: Ask,
    *,
    policy: LayoutPolicy,
    count: Count,
    concurrency: int,
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
    ordered = order_of([requests[n] for n in left], policy=policy, count=count)
    order = [(left[at], wanted) for at, wanted in ordered]
    async for done in _in_turn(requests, order, ask, concurrency):
        yield done


async def _in_turn(
    requests: Sequence[Request],
    order: Sequence[tuple[int, Wanted]],
    ask: Ask,
    concurrency: int,
) -> AsyncGenerator[tuple[int, Answer | Exception], None]:
    waiting = list(reversed(order))
    running: dict[asyncio.Task[Answer], int] = {}
    try:
        while waiting or running:
            while waiting and len(running) < concurrency:
                number, wanted = waiting.pop()
                running[asyncio.ensure_future(ask(requests[number], wanted))] = number
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
