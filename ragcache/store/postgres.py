"""Answers in Postgres with pgvector: the `Store` of `ragcache.protocols`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgvector.psycopg.vector import register_vector_info
from psycopg.types import TypeInfo
from psycopg_pool import AsyncConnectionPool

from ..protocols import Neighbourhood, Snapshot
from ..types import (
    Candidate,
    Document,
    Entry,
    EntryId,
    EntryState,
    Keys,
    Scope,
    TenantId,
    Vector,
)
from . import checks, invalidating
from .around import neighbourhood
from .errors import translated
from .locks import Locks
from .near import Near, Place
from .queries import queries
from .rows import (
    document_names,
    exact_candidates,
    key_values,
    near_candidates,
    scope_values,
    storable,
    unstorable,
)
from .session import (
    Connection,
    PlanningConnection,
    Pool,
    Rounds,
    is_pooled,
    round_trips,
    transaction,
)
from .states import States
from .storing import Storing
from .vectors import HALFVEC, VECTOR, Column, Lengths, column_for

_LOOKUP, _STORING = queries("lookup"), queries("storing")
#: The planner leaves out of a subquery what nobody asks it for: no answer, no lineage.
_STANDING = f"SELECT f.id, f.state, f.current FROM ({_LOOKUP['find_exact']}) AS f"  # noqa: S608 -- our own text
#: Candidates ranked beyond those asked for where one of these fell to a changed document.
_OVERREACH = 24
#: How many neighbours a walk keeps in sight (pgvector's own default).
_EF_SEARCH = 40
#: So many uses before psycopg prepares a statement by itself: never; see `session`.
_ONLY_ON_REQUEST = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How an entry stands: its state, and whether its documents and its epoch are current."""

    state: EntryState
    current: bool


class PostgresStore(States):
    """Answers of many tenants in one Postgres, kept apart by the database itself.

    Args:
        dsn: The app role's; `ragcache init` made it.
        pool_size: Most connections at a time.
        pool_wait_s: Longest wait for a free one; then the request goes on without the cache.
        open_wait_s: Longest wait for the first connection when the store is opened.
        lookup_timeout_s: Longest time the server spends on one statement of a lookup.
        write_timeout_s: The same for storing and invalidating.
        halfvec: Keep new vectors in half precision: half the size, the same recall.
        dimensions: Length of the embedder's vectors, where it is known beforehand.
        quota: Most entries a namespace of a tenant keeps; the least recently used leave first.
        name: For messages and metrics.

    Raises (every method): StoreUnavailableError, where the database cannot be reached in time.
    """

    has_vectors = True

    def __init__(
        self,
        dsn: str,
        *,
        pool_size: int = 8,
        pool_wait_s: float = 0.05,
        open_wait_s: float = 2.0,
        lookup_timeout_s: float = 0.05,
        write_timeout_s: float = 5.0,
        halfvec: bool = False,
        dimensions: int | None = None,
        quota: int = 100_000,
        name: str = "postgres",
    ) -> None:
        self.name = name
        self._open_wait_s = open_wait_s
        self._lookup_timeout_s = lookup_timeout_s
        self._write_timeout_s = write_timeout_s
        self._halfvec = halfvec
        self._lengths = Lengths(dimensions)
        self._storing = Storing(quota)
        self._near = Near()
        self._vector_type: TypeInfo | None = None
        self._checked = False
        self._checking = asyncio.Lock()
        self._locks = Locks(dsn, wait_s=lookup_timeout_s)
        self._pool: Pool = AsyncConnectionPool(
            dsn,
            connection_class=PlanningConnection,
            open=False,
            min_size=1,
            max_size=pool_size,
            timeout=pool_wait_s,
            max_waiting=pool_size * 16,
            reconnect_timeout=2.0,
            configure=self._configure,
            name=f"ragcache-{name}",
            kwargs={
                "prepare_threshold": _ONLY_ON_REQUEST,
                "autocommit": True,
                "application_name": "ragcache",
                "connect_timeout": 2,
                # A peer that swallows packets is given up, so that its connection comes back.
                "tcp_user_timeout": 5000,
            },
        )

    # --- coming and going --------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and check isolation.

        After StoreUnavailableError the store may be used all the same: it goes on trying to
        connect, and checks before it serves for the first time.

        Raises:
            StoreError: The server is too old, or has no pgvector.
            MigrationError: The schema is missing or behind.
            IsolationError: Tenants are not kept apart.
        """
        with translated():
            await self._pool.open(wait=False)
            # Not `pool.wait()`: when that gives up, it closes the pool for ever.
            async with self._pool.connection(timeout=self._open_wait_s):
                pass
        await self._ready()

    async def close(self) -> None:
        """Give the connections back."""
        await self._locks.close()
        await self._pool.close(timeout=2.0)

    async def _configure(self, connection: Connection) -> None:
        """Teach a new connection what a vector is, and see whose connection it is."""
        if await is_pooled(connection):
            connection.prepare_threshold = None
        if self._vector_type is None:
            self._vector_type = await TypeInfo.fetch(connection, "vector")
        if self._vector_type is not None:
            register_vector_info(connection, self._vector_type)

    async def _ready(self) -> None:
        """Check once before anything is served, whenever the database comes up."""
        if self._checked:
            return
        async with self._checking:
            if not self._checked:
                with translated():
                    await checks.check(self._pool)
                self._checked = True

    # --- reading -----------------------------------------------------------------------------

    async def find_exact(self, scope: Scope, keys: Keys, *, now: datetime) -> Sequence[Candidate]:
        """Return entries under either key: servable before expired, exact before normal.

        Expired ones and ones whose documents have changed come last and say so, so that a miss
        can tell why.
        """
        async with self._rounds(scope.tenant) as rounds:
            rows = await rounds.ask(_LOOKUP["find_exact"], key_values(scope, keys), last=True)
        return exact_candidates(rows, scope, keys, now)

    async def standing(self, scope: Scope, keys: Keys) -> Mapping[EntryId, Standing]:
        """Return what `find_exact` would find, and how each of them stands, but no answer."""
        async with self._rounds(scope.tenant) as rounds:
            rows = await rounds.ask(_STANDING, key_values(scope, keys), last=True)
        return {EntryId(id_): Standing(state=state, current=now) for id_, state, now in rows}

    async def find_similar(
        self, scope: Scope, vector: Vector, *, embedder: str, now: datetime, limit: int
    ) -> Sequence[Candidate]:
        """Return the nearest servable entries of this scope, nearest first.

        Raises:
            VectorError: The vector is NaN, zero or of another length than this embedder's.
        """
        sound = self._lengths.checked(vector, embedder)
        values = {
            **scope_values(scope),
            "vector": sound,
            "embedder": storable(embedder),
            "now": now,
        }
        place = self._place(values, sound)
        graph = {"purpose": "indexed", "ef_search": str(max(_EF_SEARCH, limit + _OVERREACH))}
        indexed = self._near.indexed(place)
        async with self._rounds(scope.tenant, **(graph if indexed else {})) as rounds:
            await self._near.refresh(rounds)
            found: Sequence[Candidate] = ()
            for reach in (limit, limit + _OVERREACH):
                rows = await self._near.find(rounds, {**values, "reach": reach}, place)
                found = near_candidates(rows, scope)
                if len(found) >= limit or len(rows) < reach:
                    break
            return found[:limit]

    async def neighbourhood(
        self,
        scope: Scope,
        keys: Keys,
        vector: Vector | None,
        *,
        embedder: str,
        now: datetime,
        own: int,
        others: int,
    ) -> Neighbourhood:
        """Return what this scope holds near a question, or under its keys, whoever wrote it.

        Raises:
            VectorError: The vector is NaN, zero or of another length than this embedder's.
        """
        values = {**scope_values(scope), **key_values(scope, keys), "now": now}
        values |= {"own": own, "others": others, "embedder": storable(embedder)}
        place = None
        if vector is not None:
            values["vector"] = sound = self._lengths.checked(vector, embedder)
            place = self._place(values, sound)
        async with self._rounds(scope.tenant, timeout_s=self._write_timeout_s) as rounds:
            return await neighbourhood(rounds, scope, values, place)

    def _place(self, values: Mapping[str, Any], vector: Vector) -> Place:
        return Place(
            tenant=values["tenant"],
            partition=values["partition"],
            embedder=values["embedder"],
            dimensions=vector.size,
            column=column_for(vector.size, halfvec=self._halfvec),
        )

    async def snapshot(self, scope: Scope, documents: Sequence[Document]) -> Snapshot:
        """Return the epoch of the namespace and the change numbers of the documents."""
        names = document_names(documents)
        values = {**scope_values(scope), "names": list(names)}
        async with self._rounds(scope.tenant) as rounds:
            ((epoch, numbers),) = await rounds.ask(_LOOKUP["snapshot"], values, last=True)
            if epoch is None:
                # A purge of the tenant must find a row to move on, or it would miss this answer.
                await rounds.ask(_STORING["ensure_namespace"], values, prepare=False, last=True)
        return Snapshot(
            epoch=epoch or 0, changes=tuple((name, numbers.get(name, 0)) for name in names)
        )

    @asynccontextmanager
    async def _rounds(self, tenant: TenantId, **options: Any) -> AsyncIterator[Rounds]:
        await self._ready()
        options.setdefault("timeout_s", self._lookup_timeout_s)
        async with round_trips(self._pool, tenant, **options) as rounds:
            yield rounds

    # --- writing -----------------------------------------------------------------------------

    async def put(self, entry: Entry, snapshot: Snapshot) -> str:
        """Store the entry unless what it depends on has changed since the snapshot.

        Returns:
            "" when stored, else why not: "epoch", "document_changed", "exists" (somebody else
            stored the same key at the same moment), "quota" (the namespace may keep none),
            "unstorable" (a text that Postgres cannot hold).

        Raises:
            VectorError: The vector is NaN, zero or of another length than this embedder's.
        """
        vectors: dict[str, Vector | None] = {"vector": None, "half": None}
        if entry.vector is not None:
            vectors |= self._vector_values(entry.vector, entry.embedder)
        if unstorable(entry):
            return "unstorable"
        async with self._writing(entry.scope.tenant, purpose="store") as connection:
            return await self._storing.put(connection, entry, snapshot, vectors)

    def _vector_values(self, vector: Vector, embedder: str) -> dict[str, Vector]:
        sound = self._lengths.checked(vector, embedder)
        column: Column = column_for(sound.size, halfvec=self._halfvec)
        return {{VECTOR: "vector", HALFVEC: "half"}[column]: sound}

    async def touch(self, scope: Scope, entry: EntryId, *, now: datetime) -> None:
        """Note a hit: never extends a lifetime."""
        values = {"tenant": storable(scope.tenant), "id": storable(entry), "now": now}
        options = {"purpose": "store", "timeout_s": self._write_timeout_s}
        async with self._rounds(scope.tenant, **options) as rounds:
            await rounds.ask(_STORING["touch"], values, last=True)

    async def change(self, tenant: TenantId, names: Sequence[str]) -> int:
        """Note that documents changed; return how many entries that kills.

        From the commit on, no entry with one of them in its lineage is served, and no answer
        begun before is stored.
        """
        async with self._writing(tenant) as connection:
            return await invalidating.change(connection, tenant, names)

    async def bump_epoch(self, tenant: TenantId, namespace: str) -> int:
        """Kill every entry of a namespace; return the new epoch."""
        async with self._writing(tenant) as connection:
            return await invalidating.bump_epoch(connection, tenant, namespace)

    async def quarantine(self, scope: Scope, entry: EntryId, *, reason: str) -> None:
        """Take an entry out of service, also for its writer, and write an audit row."""
        async with self._writing(scope.tenant) as connection:
            await invalidating.quarantine(connection, scope.tenant, entry, reason)

    async def purge(self, tenant: TenantId, *, dry_run: bool = False) -> int:
        """Remove every entry of a tenant; return how many.

        Answers on their way in come too late: the epochs of its namespaces move on.
        """
        async with self._writing(tenant) as connection:
            if dry_run:
                return await invalidating.count(connection, tenant)
            return await invalidating.purge(connection, tenant)

    def alone(self, scope: Scope, key: str) -> AbstractAsyncContextManager[bool]:
        """Hold the turn of a key inside its scope; yields False while another process has it.

        It holds no connection of the pool. Where the server cannot be asked, every process has
        the turn: a second call is better than none.
        """
        return self._locks.alone(scope, key)

    @asynccontextmanager
    async def _writing(self, tenant: TenantId, **options: Any) -> AsyncIterator[Connection]:
        await self._ready()
        options["timeout_s"] = self._write_timeout_s
        async with transaction(self._pool, tenant, **options) as connection:
            yield connection
