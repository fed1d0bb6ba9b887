"""The way to the server: bounded in time, with one error for everything that will pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .errors import translated
from .scripts import script

Value = str | bytes | int | float


class Link:
    """Connections to one Redis, or to one cluster.

    A connection that was closed while it waited in the pool is replaced once within the same
    call; every script may run twice without harm. Nothing else is tried again.

    Args:
        dsn: `redis://`, `rediss://` or `unix://`, with user and password.
        cluster: The server is a cluster.
        pool_size: Most connections at a time.
        pool_wait_s: Longest wait for a free one.
        connect_s: Longest wait for a new one.
    """

    def __init__(
        self, dsn: str, *, cluster: bool, pool_size: int, pool_wait_s: float, connect_s: float
    ) -> None:
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_connect_timeout": connect_s,
            # Each call has its bound already. With a timeout of its own redis-py sends through
            # `asyncio.wait_for`, which in Python 3.11 loses a cancellation that comes when the
            # sending is just done: the call then outlived its bound by ten seconds.
            "socket_timeout": None,
            "retry": Retry(NoBackoff(), 1),
        }
        if not dsn.startswith("unix:"):
            options["socket_keepalive"] = True
        self.cluster = cluster
        self._client: Redis | RedisCluster
        if cluster:
            self._client = RedisCluster.from_url(dsn, max_connections=pool_size, **options)
        else:
            pool = BlockingConnectionPool.from_url(
                dsn, max_connections=pool_size, timeout=pool_wait_s, **options
            )
            self._client = Redis.from_pool(pool)

    async def ask(self, name: str, keys: Sequence[str], *values: Value, timeout_s: float) -> Any:
        """Run a script; the keys, all in one slot, say on which server.

        Raises:
            StoreUnavailableError: Away, too slow, full, a replica, or no connection was free.
            StoreError: The server refused.
        """
        wanted = script(name)
        with translated():
            async with asyncio.timeout(timeout_s):
                try:
                    arguments = (len(keys), *keys, *values)
                    try:
                        return await self._run("EVALSHA", wanted.sha, *arguments)
                    except exceptions.NoScriptError:
                        return await self._run("EVAL", wanted.text, *arguments)
                except exceptions.ReadOnlyError:
                    await self._forget_connections()
                    raise

    async def within(
        self, prefix: str, name: str, *values: Value, keys: Sequence[str] = (), timeout_s: float
    ) -> Any:
        """Run a script on the clock of a tenant; `keys` are further ones. Raises as `ask` does."""
        known = (f"{prefix}clock", f"{prefix}changed")
        return await self.ask(name, (*known, *keys), prefix, *values, timeout_s=timeout_s)

    async def tell(self, *command: Value, timeout_s: float, near: str = "") -> Any:
        """Run a command; in a cluster on the server that keeps the key `near`, or on any.

        Raises as `ask` does.
        """
        where: dict[str, Any] = {}
        if isinstance(self._client, RedisCluster):
            where["target_nodes"] = self._node(self._client, near)
        with translated():
            async with asyncio.timeout(timeout_s):
                return await self._run(*command, **where)

    async def keys(self, pattern: str, *, timeout_s: float) -> AsyncIterator[str]:
        """Yield the keys of a pattern, of all nodes of a cluster. Raises as `ask` does."""
        with translated():
            walk = self._client.scan_iter(match=pattern, count=1000)
            while True:
                async with asyncio.timeout(timeout_s):
                    key = await anext(walk, None)
                if key is None:
                    return
                yield key.decode()

    @staticmethod
    def _node(client: RedisCluster, near: str) -> Any:
        if not near:
            return RedisCluster.RANDOM
        return client.get_node_from_key(near)

    async def _run(self, *command: Value, **options: Any) -> Any:
        return await self._client.execute_command(*command, **options)

    async def _forget_connections(self) -> None:
        """After a failover the name leads elsewhere: look it up anew."""
        if isinstance(self._client, Redis):
            await self._client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        """Give the connections back."""
        await self._client.aclose()
