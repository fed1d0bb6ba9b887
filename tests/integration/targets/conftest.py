"""Targets against strict fake servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ragcache.targets.openai import OpenAITarget
from tests.doubles.upstream import Upstream

MakeTarget = Callable[..., OpenAITarget]


@pytest.fixture(params=["httpx", "aiohttp"])
async def target(upstream: Upstream, request: pytest.FixtureRequest) -> AsyncIterator[MakeTarget]:
    """Make a target of the fake server, with either transport; it is closed with the test."""
    async with AsyncExitStack() as stack:

        def made(**fields: Any) -> OpenAITarget:
            given: dict[str, Any] = {
                "model": "fake",
                "base_url": upstream.base_url,
                "transport": request.param,
            }
            target = OpenAITarget(**(given | fields))
            stack.push_async_callback(target.close)
            return target

        yield made
