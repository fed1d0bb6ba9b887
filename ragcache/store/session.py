"""The one place where a transaction is given its tenant.

The setting is local to the transaction, so that neither the next borrower of the connection nor
another client behind a transaction pooler inherits it. Statements outside such a transaction
see no row at all.

Plans: a statement is prepared only where it says `prepare=True`, and only on a connection of our
own. Those are the ones whose plan is the same for every tenant (planning an exact lookup costs
more than running it). A vector search is planned for the tenant at hand each time: a plan kept
from a large tenant finds a third of a small one's answers. Kept plans are made anew once a minute:
one that was made for an empty table reads the whole of a full one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, Literal, LiteralString

from psycopg import AsyncConnection, AsyncPipeline
from psycopg_pool import AsyncConnectionPool

from ..errors import MissingTenantError
from ..types import TenantId
from .errors import translated
from .queries import queries
from .rows import storable

_BEGIN = queries("session")
Purpose = Literal["tenant", "indexed", "store"]
Connection = AsyncConnection[tuple[Any, ...]]
Pool = AsyncConnectionPool[Connection]
_PLANS_KEPT_S = 60.0


class PlanningConnection(AsyncConnection[tuple[Any, ...]]):
    """A connection that knows how old its kept plans are."""

    planned_until_s = 0.0

    async def plan_anew(self) -> None:
        """Let go of plans that are too old; nothing is kept where nothing is prepared."""
        now_s = time.monotonic()
        if self.prepare_threshold is None or now_s < self.planned_until_s:
            return
        self.planned_until_s = now_s + _PLANS_KEPT_S
        await self.execute("DISCARD PLANS", prepare=False)


@asynccontextmanager
async def borrowed(pool: Pool) -> AsyncIterator[Connection]:
    """Borrow a connection, and give it back whatever happens to the borrower meanwhile.

    The pool loses a connection for good when whoever returns it is cancelled just then; so that
    is done by a task of its own.
    """
    connection = await pool.getconn()
    try:
        async with connection:
            yield connection
    finally:
        giving = asyncio.create_task(pool.putconn(connection))
        try:
            await asyncio.shield(giving)
        except asyncio.CancelledError:
            await asyncio.wait({giving})
            raise


@asynccontextmanager
async def transaction(
    pool: Pool, tenant: TenantId, *, timeout_s: float, purpose: Purpose = "tenant", **settings: str
) -> AsyncIterator[Connection]:
    """Borrow a connection for one transaction inside one tenant.

    Args:
        pool: Whose connection.
        tenant: Whose rows; everything else does not exist inside.
        timeout_s: Longest time the server may spend on one statement.
        purpose: Which settings come with it; see `sql/session.sql`.
        settings: Values of further settings that the purpose names.

    Raises:
        MissingTenantError: The tenant is empty.
        StoreUnavailableError: No connection was free in time, or the server is not reachable.
    """
    values = {"timeout_ms": str(max(1, int(timeout_s * 1000))), **settings}
    with translated():
        async with borrowed(pool) as connection:
            if isinstance(connection, PlanningConnection):
                await connection.plan_anew()
            async with inside(connection, tenant, purpose, values):
                yield connection


class Rounds:
    """A transaction inside one tenant, in as few round trips as its statements allow.

    What opens it goes out together with its first statement, what closes it with its last: over
    a network a lookup then takes one round trip in place of four.
    """

    def __init__(
        self, connection: Connection, begin: LiteralString, values: Mapping[str, str]
    ) -> None:
        self._connection = connection
        self._begin, self._values = begin, values
        self._begun = False

    async def ask(
        self,
        statement: LiteralString | bytes,
        values: Mapping[str, Any],
        *,
        prepare: bool = True,
        last: bool = False,
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; `last` ends the transaction with it.

        After its end, another statement begins a transaction anew. One that is not ended is
        committed, or rolled back after an error, when the connection goes back.
        """
        execute = self._connection.execute
        async with self._together():
            if not self._begun:
                await execute("BEGIN", prepare=True)
                await execute(self._begin, self._values, prepare=True)
            self._begun = not last
            cursor = await execute(statement, values, prepare=prepare)
            if last:
                await execute("COMMIT", prepare=True)
        return await cursor.fetchall() if cursor.rownumber is not None else []

    def _together(self) -> AbstractAsyncContextManager[object]:
        """Send statements without waiting for each; one by one where a pooler stands between."""
        if self._connection.prepare_threshold is None or not AsyncPipeline.is_supported():
            return nullcontext()
        return self._connection.pipeline()


@asynccontextmanager
async def round_trips(
    pool: Pool, tenant: TenantId, *, timeout_s: float, purpose: Purpose = "tenant", **settings: str
) -> AsyncIterator[Rounds]:
    """Borrow a connection as `transaction` does, for few statements that need no word between.

    Raises:
        MissingTenantError: The tenant is empty.
        StoreUnavailableError: No connection was free in time, or the server is not reachable.
    """
    if not tenant:
        raise MissingTenantError
    values = {
        "tenant": storable(tenant),
        "timeout_ms": str(max(1, int(timeout_s * 1000))),
        **settings,
    }
    with translated():
        async with borrowed(pool) as connection:
            if isinstance(connection, PlanningConnection):
                await connection.plan_anew()
            yield Rounds(connection, _BEGIN[f"begin_{purpose}"], values)


@asynccontextmanager
async def inside(
    connection: Connection, tenant: TenantId, purpose: Purpose, settings: Mapping[str, str]
) -> AsyncIterator[None]:
    """Open a transaction inside one tenant on this connection.

    Raises:
        MissingTenantError: The tenant is empty.
    """
    if not tenant:
        raise MissingTenantError
    async with connection.transaction():
        values = {"tenant": storable(tenant), **settings}
        await connection.execute(_BEGIN[f"begin_{purpose}"], values, prepare=True)
        yield


async def is_pooled(connection: Connection) -> bool:
    """Return whether a pooler stands between: it hands out process ids of its own.

    Behind one, the next transaction may run on another server connection, which knows nothing
    of a statement that was prepared here.
    """
    cursor = await connection.execute("SELECT pg_backend_pid()", prepare=False)
    row = await cursor.fetchone()
    return row is None or row[0] != connection.info.backend_pid
