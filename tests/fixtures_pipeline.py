"""A pipeline over the real Postgres, with a fake provider, a table of similarities and a clock."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ragcache.admission import AdmissionPolicy, KeyRing
from ragcache.events import Event, Hooks
from ragcache.layout import LayoutPolicy
from ragcache.lookup import GuardPolicy, LookupPolicy
from ragcache.pipeline import Budgets, Pipeline, Policies
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from ragcache.targets.openai import OpenAITarget

from .doubles.clock import Clock
from .doubles.embedder import TableEmbedder
from .doubles.upstream import Upstream, serving

#: Patient on a busy machine: tests of the budgets set their own.
PATIENT = Budgets(store_s=10.0, embed_s=10.0, put_s=10.0)
KEYRING = KeyRing({"k1": b"a secret of the tests"}, "k1")

Make = Callable[..., Awaitable[Pipeline]]


async def until_asking(cache: Pipeline, callers: int) -> None:
    """Wait until so many callers wait for a call that is under way."""
    while sum(call.listeners for call in cache._flight._running.values()) < callers:
        await asyncio.sleep(0.005)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A fake provider on loopback."""
    with serving(Upstream()) as running:
        yield running


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def table() -> TableEmbedder:
    """An embedder whose similarities are set by the test."""
    return TableEmbedder()


@pytest.fixture
def events() -> list[Event]:
    """Every event of the pipelines of this test."""
    return []


@pytest.fixture
async def make(
    postgres: Dsns,
    upstream: Upstream,
    clock: Clock,
    table: TableEmbedder,
    events: list[Event],
) -> AsyncIterator[Make]:
    """Make a pipeline: keyword arguments of `Pipeline`, or fields of the policies."""
    deployment = secrets.token_hex(8)
    async with AsyncExitStack() as stack:

        async def made(
            *,
            layout: dict[str, Any] | None = None,
            lookup: dict[str, Any] | None = None,
            admission: dict[str, Any] | None = None,
            budgets: Budgets = PATIENT,
            guard: GuardPolicy | None = None,
            **parts: Any,
        ) -> Pipeline:
            target = OpenAITarget(model="fake", base_url=upstream.base_url)
            stack.push_async_callback(target.close)
            given: dict[str, Any] = {
                "target": target,
                "store": PostgresStore(postgres.app, pool_wait_s=10.0, lookup_timeout_s=10.0),
                "embedder": table,
                "keyring": KEYRING,
                "clock": clock,
                "hooks": Hooks(events.append),
                "deployment": deployment,
                "draw": lambda: 1.0,  # no hit is verified unless the test wants it
                "policies": Policies(
                    layout=LayoutPolicy(**(layout or {})),
                    lookup=LookupPolicy(**{"uncertified_threshold": 0.9, **(lookup or {})}),
                    admission=AdmissionPolicy(**(admission or {})),
                    budgets=budgets,
                    guard=guard,
                ),
            }
            return await stack.enter_async_context(Pipeline(**(given | parts)))

        yield made
