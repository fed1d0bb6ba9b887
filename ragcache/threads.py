"""Synchronous models under an asynchronous pipeline: each step in a thread, in one context."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")
_END = object()

#: Synchronous models block a thread each; idle ones are kept. A model call waits on the network,
#: so their number bounds concurrency, not work.
_THREADS = ThreadPoolExecutor(max_workers=1024, thread_name_prefix="ragcache-model")


def threaded(context: Context, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
    """Run blocking work in a thread, in the context of the caller it is done for."""
    return asyncio.get_running_loop().run_in_executor(
        _THREADS, functools.partial(context.run, work, *args)
    )


async def steps(context: Context, pieces: Generator[T, None, None]) -> AsyncGenerator[T, None]:
    """Yield what a blocking generator yields, and close it when the reader leaves."""
    step: asyncio.Future[Any] | None = None
    try:
        while True:
            step = threaded(context, next, pieces, _END)
            if (piece := await step) is _END:
                return
            yield piece
    finally:
        _close(pieces, step)


def _close(pieces: Generator[Any, None, None], step: asyncio.Future[Any] | None) -> None:
    """Close the generator, after a step that still runs where the reader has left."""
    if step is not None and inspect.getgeneratorstate(pieces) == inspect.GEN_RUNNING:
        _THREADS.submit(_close_later, pieces)
    else:
        pieces.close()


def _close_later(pieces: Generator[Any, None, None]) -> None:
    while inspect.getgeneratorstate(pieces) == inspect.GEN_RUNNING:
        time.sleep(0.05)  # a step of the model's cannot be interrupted
    pieces.close()
