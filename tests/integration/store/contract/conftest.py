"""Every test here runs on every kind of store; `similar` in its name asks for one with vectors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from ragcache.protocols import Store
from tests.store_kinds import KINDS, Make

Opened = Callable[..., Awaitable[Store]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run on each kind; what searches by likeness only where that can be done."""
    if "make_store" not in metafunc.fixturenames:
        return
    searches = "similar" in metafunc.function.__name__
    kinds = [name for name, kind in KINDS.items() if kind.has_vectors or not searches]
    metafunc.parametrize("make_store", kinds, indirect=True)


@pytest.fixture
def make_store(request: pytest.FixtureRequest) -> Make:
    """Make a store over what all stores of this test share."""
    return KINDS[request.param].prepare(request)


@pytest.fixture
async def another(make_store: Make) -> AsyncIterator[Opened]:
    """Open one more store, as another process would; keyword arguments are the store's."""
    async with AsyncExitStack() as stack:

        async def opened(**options: object) -> Store:
            store = make_store(**options)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield opened


@pytest.fixture
async def store(another: Opened) -> Store:
    """An open store of the kind at hand."""
    return await another()
