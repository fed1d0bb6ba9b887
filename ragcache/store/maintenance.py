"""What keeps tables small and searches fast, done by the ops role while others serve.

Everything runs in small steps that may be stopped at any moment and repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from psycopg import sql

from ..errors import StoreError
from . import traffic
from .near import index_name
from .ops import SQL, Ops, connected, inside, tenants
from .queries import queries
from .roles import OWNER
from .vectors import HALFVEC, VECTOR, Column

#: From so many vectors of one embedder in one partition on, a graph beats looking at each.
INDEX_AT = 5_000
#: Rows removed in one transaction.
_BATCH = 1_000
#: How long a cancelled round may take to come to its end.
_BREAK_OFF_S = 5.0
#: An answer begun before a change is on its way for less than this.
_IN_FLIGHT_MAX = timedelta(days=1)
_STORING = queries("storing")
#: Held by whoever maintains this database; any fixed number will do.
_LOCK = 0x6D61696E
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """What a round of maintenance has done."""

    swept: int = 0
    evicted: int = 0
    documents: int = 0
    states: int = 0
    records: int = 0
    built: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """One partition's vectors of one embedder, enough of them for an index of their own."""

    tenant: str
    partition: str
    embedder: str
    dimensions: int
    column: Column
    vectors: int

    @property
    def index(self) -> str:
        """Return the name of its index."""
        return index_name(self.tenant, self.partition, self.embedder, self.dimensions, self.column)


def maintain(
    ops_dsn: str,
    *,
    now: datetime,
    index_at: int = INDEX_AT,
    keep_deleted: timedelta = timedelta(hours=1),
    quota: int | None = None,
    progress: Callable[[str], None] | None = None,
    holding: Callable[[Ops], None] | None = None,
) -> Maintained:
    """Sweep, evict, forget, trim records, and build or drop the vector indexes of large partitions.

    Args:
        ops_dsn: The ops role's.
        now: The moment by which entries have expired.
        index_at: Vectors in a partition from which an index is built; it is dropped below half.
        keep_deleted: How long a softly deleted entry can still be restored.
        quota: Most entries of a namespace that has no quota of its own.
        progress: Called with a line for each step.
        holding: Called with the connection that works, for whoever may have to break it off.

    Returns:
        What was done; nothing where another process is at it.
    """
    say = progress or (lambda _: None)
    swept = evicted = documents = states = 0
    crowds: list[Crowd] = []
    with connected(ops_dsn) as connection:
        if holding is not None:
            holding(connection)
        if not connection.execute(SQL["alone"], {"lock": _LOCK}).fetchall()[0][0]:
            say("another process is at it")
            return Maintained()
        for tenant in tenants(connection):
            swept += _sweep(connection, tenant, now, now - keep_deleted)
            evicted += _evict(connection, tenant, now, quota)
            documents += _forget(connection, tenant)
            states += _sweep_states(connection, tenant, now)
            crowds += _crowds(connection, tenant, max(1, index_at // 2))
        say(f"{swept} swept, {evicted} evicted, {documents} documents forgotten")
        built, dropped = _apply(connection, crowds, index_at, say)
    return Maintained(
        swept=swept,
        evicted=evicted,
        documents=documents,
        states=states,
        records=traffic.sweep(ops_dsn, now=now),
        built=built,
        dropped=dropped,
    )


async def keep_maintained(
    ops_dsn: str,
    *,
    every_s: float = 300.0,
    clock: Callable[[], datetime],
    quota: int | None = None,
    index_at: int = INDEX_AT,
) -> None:
    """Maintain now and then until cancelled: a background task, in threads of its own.

    Several processes may run it; one of them works at a time. A round that fails is logged, and
    the next one goes on: nothing that serves depends on it. When it is cancelled, the statement
    that runs is broken off: an index that is half built then is built anew by the next round.
    """
    while True:
        # The first round too: whoever has just started has better things to do.
        await asyncio.sleep(every_s)
        try:
            await _one_round(ops_dsn, now=clock(), quota=quota, index_at=index_at)
        except StoreError as error:
            _log.warning("maintenance failed, next try in %.0f s: %s", every_s, error)


async def _one_round(
    ops_dsn: str, *, now: datetime, quota: int | None, index_at: int
) -> Maintained:
    held: list[Ops] = []
    working = asyncio.create_task(
        asyncio.to_thread(
            maintain, ops_dsn, now=now, quota=quota, index_at=index_at, holding=held.append
        )
    )
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        for connection in held:
            connection.cancel()
        await asyncio.wait({working}, timeout=_BREAK_OFF_S)
        raise


def _sweep(connection: Ops, tenant: str, now: datetime, deleted_before: datetime) -> int:
    values = {"tenant": tenant, "now": now, "deleted_before": deleted_before, "batch": _BATCH}
    total = 0
    while True:
        with inside(connection, tenant):
            count = connection.execute(SQL["sweep"], values).rowcount
        total += count
        if count < _BATCH:
            return total


def _evict(connection: Ops, tenant: str, now: datetime, quota: int | None) -> int:
    evicted = 0
    with inside(connection, tenant):
        rows = connection.execute(SQL["namespaces"], {"tenant": tenant}).fetchall()
        for namespace, own, count in rows:
            limit = own if own is not None else quota
            if limit is None or count <= limit:
                continue
            values = {
                "tenant": tenant,
                "namespace": namespace,
                "now": now,
                "excess": count - limit,
            }
            evicted += connection.execute(_STORING["evict"], values).rowcount
    return evicted


def _forget(connection: Ops, tenant: str) -> int:
    # Compared with the moment of the change, which is the database's own clock.
    with inside(connection, tenant):
        ((before,),) = connection.execute(
            "SELECT clock_timestamp() - %s::interval", (_IN_FLIGHT_MAX,)
        ).fetchall()
        values = {"tenant": tenant, "before": before}
        return connection.execute(SQL["forget_documents"], values).rowcount


def _sweep_states(connection: Ops, tenant: str, now: datetime) -> int:
    with inside(connection, tenant):
        return connection.execute(SQL["sweep_states"], {"tenant": tenant, "now": now}).rowcount


def _crowds(connection: Ops, tenant: str, at_least: int) -> list[Crowd]:
    with inside(connection, tenant):
        rows = connection.execute(
            SQL["crowds"], {"tenant": tenant, "at_least": at_least}
        ).fetchall()
    return [
        Crowd(
            tenant=tenant,
            partition=partition,
            embedder=embedder,
            dimensions=dimensions,
            column=HALFVEC if half else VECTOR,
            vectors=count,
        )
        for partition, embedder, dimensions, half, count in rows
    ]


def unindexed(ops_dsn: str, *, index_at: int = INDEX_AT) -> list[Crowd]:
    """Return the partitions that maintenance would build an index for."""
    with connected(ops_dsn) as connection:
        existing = dict(connection.execute(SQL["near_indexes"], {}).fetchall())
        crowds = [c for t in tenants(connection) for c in _crowds(connection, t, index_at)]
    return list(plan_indexes(crowds, existing, index_at=index_at).build)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    """Which vector indexes to build and which to drop; drops come first."""

    build: tuple[Crowd, ...]
    drop: tuple[str, ...]


def plan_indexes(
    crowds: Sequence[Crowd], existing: Mapping[str, bool], *, index_at: int
) -> IndexPlan:
    """Decide from what is crowded and what exists (index name -> whole).

    An index stays until its partition has shrunk to half of what earned it, so that a partition
    around the limit is not indexed over and over. One that was broken off is built anew.
    """
    crowded = {crowd.index: crowd for crowd in crowds if crowd.vectors * 2 >= index_at}
    drop = [name for name, whole in existing.items() if not whole or name not in crowded]
    build = [
        crowd
        for name, crowd in crowded.items()
        if crowd.vectors >= index_at and not existing.get(name, False)
    ]
    return IndexPlan(build=tuple(build), drop=tuple(sorted(drop)))


def _apply(
    connection: Ops, crowds: Sequence[Crowd], index_at: int, say: Callable[[str], None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    existing: dict[str, bool] = dict(connection.execute(SQL["near_indexes"], {}).fetchall())
    plan = plan_indexes(crowds, existing, index_at=index_at)
    if plan.build or plan.drop:
        _become_owner(connection)
    for name in plan.drop:
        say(f"dropping {name}")
        connection.execute(sql.SQL(SQL["drop_index"]).format(index=sql.Identifier(name)))
    for crowd in plan.build:
        say(f"building {crowd.index} over {crowd.vectors} vectors")
        connection.execute(_index_statement(crowd))
    return tuple(crowd.index for crowd in plan.build), plan.drop


def _become_owner(connection: Ops) -> None:
    """Building is the owner's right. Memory for the graph; one process, since shared memory of
    a container is often too small for several."""
    connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(OWNER)))
    connection.execute("SET maintenance_work_mem = '256MB'")
    connection.execute("SET max_parallel_maintenance_workers = 0")


def _index_statement(crowd: Crowd) -> sql.Composed:
    return sql.SQL(SQL["build_index"]).format(
        index=sql.Identifier(crowd.index),
        column=sql.Identifier(crowd.column.name),
        type=sql.Identifier(crowd.column.type),
        dimensions=sql.Literal(crowd.dimensions),
        operators=sql.Identifier(f"{crowd.column.type}_cosine_ops"),
        tenant=sql.Literal(crowd.tenant),
        partition=sql.Literal(crowd.partition),
        embedder=sql.Literal(crowd.embedder),
    )
