"""Answers in Redis: the `Store` of `ragcache.protocols`."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

from ...errors import StoreError
from ...protocols import Neighbourhood, Snapshot
from ...types import (
    Candidate,
    Document,
    Entry,
    EntryId,
    Keys,
    Scope,
    TenantId,
    Vector,
)
from .. import vectors
from ..notices import name_digest, notice
from ..rows import document_names, storable
from . import entries, invalidating, places, server
from .link import Link, Value
from .server import Server
from .states import RedisStates
from .storing import Storing
from .turns import RedisTurns

_log = logging.getLogger("ragcache")
#: Entries looked at under the two keys of a request.
_FOUND_MAX = 16
#: Candidates ranked beyond those asked for, since some may fall to a changed document.
_OVERREACH = 24
#: Up to so many vectors of a place each is looked at; beyond, a graph is walked.
_EXACTLY_UP_TO = 2_000
#: An index that was there is taken to be there for so long.
_INDEX_KNOWN_FOR_S = 60.0


class RedisStore(RedisStates):
    """Answers of many tenants in one Redis or Valkey, each under a prefix of its own.

    Args:
        dsn: `redis://`, `rediss://` or `unix://`, with user and password.
        cluster: The server is a cluster.
        pool_size: Most connections at a time (in a cluster: to each node).
        pool_wait_s: Longest wait for a free one; then the request goes on without the cache.
        open_wait_s: Longest wait for a connection.
        lookup_timeout_s: Longest wait for the server in a lookup.
        write_timeout_s: The same for storing and invalidating.
        quantised: Keep vectors in 8 bits (vector sets only): half the memory, similarities off
            by up to 0.002.
        quota: Most entries a namespace of a tenant keeps; the least recently used leave first.
        name: For messages and metrics.

    Raises (every method): StoreUnavailableError, where the server cannot be reached in time.
    """

    def __init__(
        self,
        dsn: str,
        *,
        cluster: bool = False,
        pool_size: int = 8,
        pool_wait_s: float = 0.05,
        open_wait_s: float = 2.0,
        lookup_timeout_s: float = 0.05,
        write_timeout_s: float = 5.0,
        quantised: bool = False,
        quota: int = 100_000,
        name: str = "redis",
    ) -> None:
        self.name = name
        #: Whether this server can search by likeness; unknown, hence no, before it answered.
        self.has_vectors = False
        self._lookup_timeout_s = lookup_timeout_s
        self._write_timeout_s = write_timeout_s
        self._storing = Storing(quota=quota, quantised=quantised)
        self._link = Link(
            dsn,
            cluster=cluster,
            pool_size=pool_size,
            pool_wait_s=pool_wait_s,
            connect_s=open_wait_s,
        )
        self._turns = RedisTurns(self._link, wait_s=lookup_timeout_s)
        self._lengths = vectors.Lengths()
        self._server: Server | None = None
        self._checking = asyncio.Lock()
        self._indexes: dict[str, float] = {}

    # --- coming and going --------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and see what the server can do.

        After StoreUnavailableError the store may be used all the same: it goes on trying.

        Raises:
            StoreError: The server is too old, a cluster that was not said to be one, or refuses
                this user.
        """
        await self._ready()

    async def close(self) -> None:
        """Give the connections back."""
        await self._turns.close()
        await self._link.close()

    async def _ready(self) -> Server:
        """Look once at the server, whenever it comes up."""
        if self._server is None:
            async with self._checking:
                if self._server is None:
                    self._server = await server.look(self._link)
                    self.has_vectors = self._server.vectors != ""
                    say = _log.info if self.has_vectors else _log.warning
                    say("the %s store is %s", self.name, self._server.detail)
        return self._server

    # --- reading -----------------------------------------------------------------------------

    async def find_exact(self, scope: Scope, keys: Keys, *, now: datetime) -> Sequence[Candidate]:
        """Return entries under either key: servable before expired, exact before normal."""
        prefix = places.prefix(scope.tenant)
        rows = await self._look(
            "find",
            prefix,
            scope.partition,
            places.writer(scope.tenant, scope.principal),
            _FOUND_MAX,
            keys=(f"{prefix}x:{keys.exact}", f"{prefix}m:{keys.normal}"),
        )
        found, broken = entries.exact_candidates(rows, scope, keys, now)
        await self._put_aside(scope, broken)
        return tuple(found)

    async def find_similar(
        self, scope: Scope, vector: Vector, *, embedder: str, now: datetime, limit: int
    ) -> Sequence[Candidate]:
        """Return the nearest servable entries of this scope, nearest first.

        Raises:
            VectorError: The vector is NaN, zero or of another length than this embedder's.
        """
        sound = self._lengths.checked(vector, embedder)
        known = await self._ready()
        if not known.vectors:
            return ()
        rows = await self._look(
            "near",
            places.prefix(scope.tenant),
            places.place(scope, embedder, sound.size),
            places.space(scope),
            places.writer(scope.tenant, scope.principal),
            entries.micros(now),
            limit,
            limit + _OVERREACH,
            known.vectors,
            sound.tobytes(),
            sound.size,
            _EXACTLY_UP_TO,
        )
        found, broken = entries.near_candidates(rows, scope)
        await self._put_aside(scope, broken)
        return tuple(found)

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
        sound = None if vector is None else self._lengths.checked(vector, embedder)
        known, prefix = await self._ready(), places.prefix(scope.tenant)
        compared = sound if known.vectors else None
        alike, rows = await self._write(
            "around",
            prefix,
            "" if compared is None else places.place(scope, embedder, compared.size),
            places.space(scope),
            places.writer(scope.tenant, scope.principal),
            entries.micros(now),
            own,
            others,
            known.vectors,
            b"" if compared is None else compared.tobytes(),
            0 if compared is None else compared.size,
            _EXACTLY_UP_TO,
            scope.partition,
            keys.exact,
            keys=(f"{prefix}x:{keys.exact}", f"{prefix}m:{keys.normal}"),
        )
        found, broken = entries.near_candidates(rows, scope)
        await self._put_aside(scope, broken)
        return Neighbourhood(own=tuple(map(float, alike)), others=tuple(found))

    async def snapshot(self, scope: Scope, documents: Sequence[Document]) -> Snapshot:
        """Return the epoch of the namespace and the change numbers of the documents."""
        names = [name_digest(scope.tenant, name) for name in document_names(documents)]
        epoch, numbers = await self._look(
            "snapshot", places.prefix(scope.tenant), places.space(scope), json.dumps(names)
        )
        changes = tuple((name, int(n)) for name, n in zip(names, numbers, strict=True))
        return Snapshot(epoch=int(epoch), changes=changes)

    async def _put_aside(self, scope: Scope, broken: Iterable[str]) -> None:
        """Take what could not be read out of service; a lookup goes on where that fails."""
        for entry in broken:
            _log.warning("entry %s of the %s store could not be read", entry, self.name)
            try:
                await self.quarantine(scope, EntryId(entry), reason="unreadable")
            except StoreError as error:
                _log.warning("it could not be put aside: %s", error)

    # --- writing -----------------------------------------------------------------------------

    async def put(self, entry: Entry, snapshot: Snapshot) -> str:
        """Store the entry unless what it depends on has changed since the snapshot.

        Returns:
            "" when stored, else why not: "epoch", "document_changed", "exists" (another entry
            has this id), "quota" (a namespace may keep none).

        Raises:
            VectorError: The vector is NaN, zero or of another length than this embedder's.
        """
        return await self._put(entry, snapshot, replacing=False)

    async def _put(self, entry: Entry, snapshot: Snapshot, *, replacing: bool) -> str:
        prefix, vector = places.prefix(entry.scope.tenant), b""
        if entry.vector is not None:
            vector = self._lengths.checked(entry.vector, entry.embedder).tobytes()
        how = (await self._ready()).vectors
        if not how:
            vector = b""
        if vector and how == "search":
            await self._ensure_index(prefix, len(vector) // 4)
        values = self._storing.values(entry, snapshot, vector, how, replacing=replacing)
        keys = (f"{prefix}x:{entry.keys.exact}", f"{prefix}m:{entry.keys.normal}")
        told: bytes = await self._write("put", prefix, *values, keys=keys)
        return told.decode()

    async def touch(self, scope: Scope, entry: EntryId, *, now: datetime) -> None:
        """Note a hit: never extends a lifetime."""
        prefix = places.prefix(scope.tenant)
        await self._write("touch", prefix, storable(entry), entries.micros(now))

    async def change(self, tenant: TenantId, names: Sequence[str]) -> int:
        """Note that documents changed; return how many entries that kills.

        From its return on, no entry with one of them in its lineage is served, and no answer
        begun before is stored.
        """
        distinct = sorted(set(names))
        digests = [name_digest(tenant, name) for name in distinct]
        prefix, told = places.prefix(tenant), notice("change", tenant, distinct)
        await self._ready()
        return await invalidating.change(
            self._link, prefix, digests, told, timeout_s=self._write_timeout_s
        )

    async def bump_epoch(self, tenant: TenantId, namespace: str) -> int:
        """Kill every entry of a namespace; return the new epoch."""
        told = notice("epoch", tenant)
        return int(await self._write("bump", places.prefix(tenant), storable(namespace), told))

    async def quarantine(self, scope: Scope, entry: EntryId, *, reason: str) -> None:
        """Take an entry out of service, also for its writer, and write an audit row."""
        await self._write(
            "quarantine",
            places.prefix(scope.tenant),
            storable(entry),
            "quarantined",
            reason or "unspecified",
            "quarantine",
            notice("quarantine", scope.tenant),
            (await self._ready()).vectors,
        )

    async def purge(self, tenant: TenantId, *, dry_run: bool = False) -> int:
        """Remove every entry of a tenant; return how many.

        None is served from the first moment on; they are removed in steps, so that the server
        goes on answering others. Answers on their way in come too late.
        """
        prefix = places.prefix(tenant)
        if dry_run:
            return int(await self._look("count", prefix))
        await self._ready()
        told = notice("purge", tenant)
        return await invalidating.purge(self._link, prefix, told, timeout_s=self._write_timeout_s)

    def alone(self, scope: Scope, key: str) -> AbstractAsyncContextManager[bool]:
        """Hold the turn of a key inside its scope; yields False while another process has it.

        Where the server cannot be asked, every process has the turn: a second call is better
        than none.
        """
        return self._turns.alone(scope, key)

    # --- asking ------------------------------------------------------------------------------

    async def _look(self, name: str, prefix: str, *values: Value, keys: Sequence[str] = ()) -> Any:
        await self._ready()
        return await self._link.within(
            prefix, name, *values, keys=keys, timeout_s=self._lookup_timeout_s
        )

    async def _write(self, name: str, prefix: str, *values: Value, keys: Sequence[str] = ()) -> Any:
        await self._ready()
        return await self._link.within(
            prefix, name, *values, keys=keys, timeout_s=self._write_timeout_s
        )

    async def _ensure_index(self, prefix: str, dimensions: int) -> None:
        """A search module looks at hashes through an index of the tenant's own."""
        name = f"{prefix}ix:{dimensions}"
        if time.monotonic() < self._indexes.get(name, 0.0):
            return
        command = server.index_command(name, f"{prefix}e:", dimensions)
        try:
            await self._link.tell(*command, timeout_s=self._write_timeout_s, near=prefix)
        except StoreError as error:
            if "exists" not in str(error).lower():
                raise
        self._indexes[name] = time.monotonic() + _INDEX_KNOWN_FOR_S
