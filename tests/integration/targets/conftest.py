"""Targets against strict fake servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ragcache.targets.openai import OpenAITarget
from tests.doubles.upstream import Upstream

MakeTarget = Callable[..., OpenAITarget]


@pytest.fixture
async def target(upstream: Upstream) -> AsyncIterator[MakeTarget]:
    """Make a target of the fake server; it is closed with the test."""
    async with AsyncExitStack() as stack:

        def made(**fields: Any) -> OpenAITarget:
            given: dict[str, Any] = {"model": "fake", "base_url": upstream.base_url}
            target = OpenAITarget(**(given | fields))
            stack.push_async_callback(target.close)
            return target

        yield made
