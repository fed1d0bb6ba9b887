"""One of several processes at a time: advisory locks, each inside a scope.

Locks live on one connection of this process: holding many costs no more than holding one, and
when the process dies, the server lets go of all of them at once. Where a lock cannot be had
because the server is away, the caller goes ahead: a second upstream call is better than none.
"""

from __future__ import annotations

import asyncio
import time

import psycopg

from ..errors import StoreUnavailableError
from ..types import Scope
from .errors import translated
from .session import Connection, is_pooled
from .turns import Turns, turn_digest


def lock_number(scope: Scope, key: str) -> int:
    """Return the number of a lock: locks are not covered by row-level security."""
    return int.from_bytes(turn_digest(scope, key)[:8], "big", signed=True)


class Locks(Turns):
    """The locks this process holds in one database.

    Args:
        dsn: The app role's, not through a pooler: through one no lock is ever refused.
        wait_s: Longest time a caller waits for the server's word, whatever the network does.
        retry_s: How long a server that could not be asked is left alone.
    """

    def __init__(self, dsn: str, *, wait_s: float = 0.05, retry_s: float = 1.0) -> None:
        super().__init__(wait_s=wait_s)
        self._dsn = dsn
        self._retry_s = retry_s
        self._held: set[int] = set()
        self._connection: Connection | None = None
        self._busy = asyncio.Lock()
        self._away_until = 0.0

    async def close(self) -> None:
        """Let go of everything."""
        await super().close()
        if self._connection is not None:
            await self._connection.close()
        self._connection = None
        self._held.clear()

    async def _take(self, scope: Scope, key: str) -> bool | None:
        number = lock_number(scope, key)
        async with self._busy:
            if number in self._held:  # locks of one session do not exclude each other
                return False
            try:
                taken = await self._ask(b"SELECT pg_try_advisory_lock(%s)", number)
            except StoreUnavailableError:
                return None
            if taken:
                self._held.add(number)
            return taken

    async def _give(self, scope: Scope, key: str) -> None:
        number = lock_number(scope, key)
        async with self._busy:
            if number not in self._held:
                return  # the server let go of it together with a connection
            self._held.discard(number)
            try:
                await self._ask(b"SELECT pg_advisory_unlock(%s)", number)
            except StoreUnavailableError:
                return

    async def _ask(self, statement: bytes, number: int) -> bool:
        if time.monotonic() < self._away_until:
            raise StoreUnavailableError("Postgres: not reachable a moment ago")
        try:
            with translated():
                connection = await self._connected()
                cursor = await connection.execute(statement, (number,))
                row = await cursor.fetchone()
        except StoreUnavailableError:
            self._away_until = time.monotonic() + self._retry_s
            raise
        return row is not None and bool(row[0])

    async def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._held.clear()  # the server let go of them together with the connection
        connection = await psycopg.AsyncConnection.connect(
            self._dsn,
            autocommit=True,
            connect_timeout=2,
            tcp_user_timeout=5000,
            prepare_threshold=None,
        )
        if await is_pooled(connection):
            await connection.close()
            raise StoreUnavailableError(
                "locks need a session of their own: give a DSN that goes past the pooler"
            )
        self._connection = connection
        return connection
