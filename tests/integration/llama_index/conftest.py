"""What every test of LlamaIndex's doors needs."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def loop_of_synchronous_calls(request: pytest.FixtureRequest) -> Iterator[None]:
    """LlamaIndex's synchronous calls take the thread's event loop, or make one and leave it open."""
    if inspect.iscoroutinefunction(request.function):
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
