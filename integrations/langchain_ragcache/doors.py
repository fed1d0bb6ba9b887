"""The ways from a framework's call into a cache, whatever thread or loop the call is made on."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from ragcache.errors import ConfigError
from ragcache.pipeline import Pipeline
from ragcache.portal import Bridge

#: What `wrap` takes: `ragcache.connect(...)`, or a cache opened with `async with`.
AnyCache: TypeAlias = Bridge | Pipeline


class Doors:
    """Finds the way in.

    Args:
        cache: A portal with its own loop, or a cache that lives on the loop running now.

    Raises:
        ConfigError: The cache is neither.
    """

    def __init__(self, cache: AnyCache) -> None:
        if not isinstance(cache, Bridge | Pipeline):
            raise ConfigError(
                f"cache is a {type(cache).__name__}: pass ragcache.connect(settings), or a cache "
                "opened with 'async with RagCache.open(settings)'"
            )
        self._cache = cache
        self._loop = cache.loop if isinstance(cache, Bridge) else _running()

    def from_thread(self) -> Bridge | None:
        """Return the way in for a call that blocks; None where it would wait for itself."""
        loop = self._loop
        if loop is None or not loop.is_running() or _running() is loop:
            return None
        return self._cache if isinstance(self._cache, Bridge) else Bridge(self._cache, loop)

    def blocks_a_loop(self) -> bool:
        """Whether a call that blocks here keeps a loop from running."""
        return _running() is not None

    def from_loop(self) -> Pipeline | Bridge | None:
        """Return the way in for a call that awaits; None where the cache's loop has ended."""
        if self._loop is None:
            self._loop = _running()
        cache = self._cache.cache if isinstance(self._cache, Bridge) else self._cache
        if self._loop is _running():
            return cache
        if self._loop is None or not self._loop.is_running():
            return None
        return self._cache if isinstance(self._cache, Bridge) else Bridge(cache, self._loop)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
