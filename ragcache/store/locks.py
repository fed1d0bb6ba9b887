"""One of several processes at a time: advisory locks, each inside a scope.

Locks live on one connection of this process: holding many costs no more than holding one, and
when the process dies, the server lets go of all of them at once. Where a lock cannot be had
because the server is away, the caller goes ahead: a second upstream call is better than none.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from ..errors import StoreUnavailableError
from ..keys import encode
from ..types import Scope
from .errors import translated
from .session import Connection, is_pooled


def lock_number(scope: Scope, key: str) -> int:
    """Return the number of a lock: from the whole scope and the key, framed.

    Locks are not covered by row-level security: two tenants, or two principals with private
    entries, must never wait for each other's call.
    """
    framed = encode(
        ["ragcache/lock/1", scope.tenant, scope.group, scope.namespace, scope.partition, key]
    )
    return int.from_bytes(hashlib.sha256(framed).digest()[:8], "big", signed=True)


class Locks:
    """The locks this process holds in one database.

    Args:
        dsn: The app role's, not through a pooler: through one no lock is ever refused.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._held: set[int] = set()
        self._connection: Connection | None = None
        self._busy = asyncio.Lock()

    @asynccontextmanager
    async def alone(self, scope: Scope, key: str) -> AsyncIterator[bool]:
        """Hold the lock of this key, if nobody has it; yields whether it is held.

        Yields True as well where the server cannot be asked.
        """
        number = lock_number(scope, key)
        taken = await self._take(number)
        try:
            yield taken
        finally:
            if taken:
                await self._give(number)

    async def close(self) -> None:
        """Let go of everything."""
        async with self._busy:
            if self._connection is not None:
                await self._connection.close()
            self._connection = None
            self._held.clear()

    async def _take(self, number: int) -> bool:
        async with self._busy:
            if number in self._held:  # locks of one session do not exclude each other
                return False
            try:
                taken = await self._ask("SELECT pg_try_advisory_lock(%s)", number)
            except StoreUnavailableError:
                return True
            if taken:
                self._held.add(number)
            return taken

    async def _give(self, number: int) -> None:
        async with self._busy:
            if number not in self._held:
                return
            self._held.discard(number)
            try:
                await self._ask("SELECT pg_advisory_unlock(%s)", number)
            except StoreUnavailableError:
                return  # the server has let go of it together with the connection

    async def _ask(self, statement: str, number: int) -> bool:
        with translated():
            if self._connection is None or self._connection.closed:
                self._held.clear()
                self._connection = await self._connect()
            cursor = await self._connection.execute(statement.encode(), (number,))
            row = await cursor.fetchone()
        return row is not None and bool(row[0])

    async def _connect(self) -> Connection:
        connection = await psycopg.AsyncConnection.connect(
            self._dsn, autocommit=True, connect_timeout=2, prepare_threshold=None
        )
        if await is_pooled(connection):
            await connection.close()
            raise StoreUnavailableError(
                "locks need a session of their own: give a DSN that goes past the pooler"
            )
        return connection
