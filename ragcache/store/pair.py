"""Redis in front of Postgres: answers come from Redis, Postgres says whether they may be served.

Nothing is served on Redis's word. Both are asked at once: Redis for the answers under the keys of
a request, Postgres for which of them stand (state, epoch, change numbers), a few indexed rows and
no text. Only what both know is taken from Redis. So an invalidation holds from its commit in
Postgres on, also one that a trigger or an operator made, and whatever Redis has not heard of yet.

What Postgres tells (LISTEN/NOTIFY) is passed on to Redis all the same, so that copies that are
worth nothing take no room and what was erased is gone there too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from ..budget import Breaker, BreakerOpenError
from ..errors import StoreError, StoreUnavailableError
from ..protocols import BAD_SIGNATURE, Neighbourhood, Snapshot
from ..types import (
    Candidate,
    Document,
    Entry,
    EntryId,
    JsonObject,
    Keys,
    Scope,
    TenantId,
    Vector,
)
from .notices import notices
from .postgres import PostgresStore, Standing
from .redis.copies import RedisCopies

_log = logging.getLogger("ragcache")
T = TypeVar("T")
#: Copies on their way to Redis; more are not begun.
_COPYING_MAX = 64
_LISTEN_AGAIN_S = 1.0
_SUSPECTS_MAX = 10_000


class PairStore:
    """The `Store` of `ragcache.protocols` over a Redis and the Postgres behind it.

    A Redis that is down costs its answers only: Postgres has them as well.

    Args:
        front: Keeps copies of answers. Its time limit should leave some of the lookup's budget.
        truth: Decides, and keeps everything.
        dsn: The app role's, not through a pooler: notices need a session of their own.
        name: For messages and metrics.
    """

    def __init__(
        self, front: RedisCopies, truth: PostgresStore, *, dsn: str, name: str = "redis+postgres"
    ) -> None:
        self.name = name
        self.has_vectors = truth.has_vectors
        self.front = front
        self.truth = truth
        self._dsn = dsn
        self._breaker = Breaker()
        self._copying: set[asyncio.Task[None]] = set()
        self._suspects: set[EntryId] = set()
        self._listening: asyncio.Task[None] | None = None

    # --- coming and going --------------------------------------------------------------------

    async def open(self) -> None:
        """Open both. A Redis that is down is done without until it is back.

        Raises:
            StoreError: One of them is there and must not be used.
        """
        self._listening = asyncio.create_task(self._listen())
        try:
            await self.front.open()
        except StoreUnavailableError as error:
            _log.warning("Redis is down, answers come from Postgres until it is back: %s", error)
        await self.truth.open()

    async def close(self) -> None:
        """Give everything back."""
        while self._listening is not None and not self._listening.done():
            # Again, if need be: Python 3.11's `wait_for`, on which psycopg waits, loses a
            # cancellation that comes together with a notice.
            self._listening.cancel()
            await asyncio.wait({self._listening}, timeout=0.1)
        await asyncio.gather(*self._copying, return_exceptions=True)
        await self.front.close()
        await self.truth.close()

    # --- reading -----------------------------------------------------------------------------

    async def find_exact(self, scope: Scope, keys: Keys, *, now: datetime) -> Sequence[Candidate]:
        """Return entries under either key: what stands in Postgres, from Redis if it is there."""
        copying = asyncio.create_task(self._copies(scope, keys, now))
        try:
            standing = await self.truth.standing(scope, keys)
            copies = await copying
        finally:
            copying.cancel()
        if standing.keys() <= copies.keys():
            return confirmed(standing, copies, now)
        found = await self.truth.find_exact(scope, keys, now=now)
        for candidate in found:
            if candidate.current and candidate.entry.id not in copies:
                self._copy_later(candidate.entry)
        return found

    async def _copies(self, scope: Scope, keys: Keys, now: datetime) -> Mapping[EntryId, Candidate]:
        found = await self._asked(self.front.find_exact(scope, keys, now=now))
        return {candidate.entry.id: candidate for candidate in found or ()}

    async def find_similar(
        self, scope: Scope, vector: Vector, *, embedder: str, now: datetime, limit: int
    ) -> Sequence[Candidate]:
        """Return the nearest servable entries of this scope, nearest first, from Postgres."""
        return await self.truth.find_similar(scope, vector, embedder=embedder, now=now, limit=limit)

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
        """Return what this scope holds near a question, whoever wrote it, from Postgres."""
        return await self.truth.neighbourhood(
            scope, keys, vector, embedder=embedder, now=now, own=own, others=others
        )

    async def snapshot(self, scope: Scope, documents: Sequence[Document]) -> Snapshot:
        """Return the epoch of the namespace and the change numbers of the documents."""
        return await self.truth.snapshot(scope, documents)

    # --- writing -----------------------------------------------------------------------------

    async def put(self, entry: Entry, snapshot: Snapshot) -> str:
        """Store the entry in Postgres; where that has stored it, Redis gets a copy."""
        refused = await self.truth.put(entry, snapshot)
        if not refused:
            await self._asked(self.front.copy(entry))
        return refused

    async def touch(self, scope: Scope, entry: EntryId, *, now: datetime) -> None:
        """Note a hit, in both: never extends a lifetime."""
        await self.truth.touch(scope, entry, now=now)
        await self._asked(self.front.touch(scope, entry, now=now))

    async def change(self, tenant: TenantId, names: Sequence[str]) -> int:
        """Note that documents changed; return how many entries that kills.

        It is done when Postgres has it. Redis hears of it here, or from the notice.
        """
        killed = await self.truth.change(tenant, names)
        await self._asked(self.front.change(tenant, names))
        return killed

    async def bump_epoch(self, tenant: TenantId, namespace: str) -> int:
        """Kill every entry of a namespace; return the new epoch."""
        epoch = await self.truth.bump_epoch(tenant, namespace)
        await self._asked(self.front.bump_epoch(tenant, namespace))
        return epoch

    async def quarantine(self, scope: Scope, entry: EntryId, *, reason: str) -> None:
        """Take an entry out of service, also for its writer, and write an audit row.

        Of an entry with a bad signature first the copy alone: whoever can write to Redis must not
        take out of service what is sound in Postgres. The second time it is the entry's own.
        """
        if reason == BAD_SIGNATURE and entry not in self._suspects:
            self._suspect(entry)
        else:
            await self.truth.quarantine(scope, entry, reason=reason)
        await self._asked(self.front.quarantine(scope, entry, reason=reason))

    def _suspect(self, entry: EntryId) -> None:
        if len(self._suspects) >= _SUSPECTS_MAX:
            self._suspects.clear()
        self._suspects.add(entry)

    async def purge(self, tenant: TenantId, *, dry_run: bool = False) -> int:
        """Remove every entry of a tenant from both; return how many.

        Raises:
            StoreUnavailableError: One of them could not be reached; purge again.
        """
        removed = await self.truth.purge(tenant, dry_run=dry_run)
        if not dry_run:
            await self.front.purge(tenant)
        return removed

    async def recall(
        self, tenant: TenantId, kind: str, key: str, *, now: datetime
    ) -> JsonObject | None:
        """Return a state kept between requests."""
        return await self.truth.recall(tenant, kind, key, now=now)

    async def remember(
        self,
        tenant: TenantId,
        kind: str,
        key: str,
        value: JsonObject,
        *,
        now: datetime,
        expire_at: datetime,
        principal: str = "",
    ) -> None:
        """Keep a state until then; `principal` is whose it is, so that it can be erased."""
        await self.truth.remember(
            tenant, kind, key, value, now=now, expire_at=expire_at, principal=principal
        )

    async def exchange(
        self,
        tenant: TenantId,
        kind: str,
        key: str,
        value: JsonObject,
        *,
        seen: int,
        now: datetime,
        expire_at: datetime,
    ) -> bool:
        """Keep a state in place of the version that was seen; return whether it is kept."""
        return await self.truth.exchange(
            tenant, kind, key, value, seen=seen, now=now, expire_at=expire_at
        )

    @asynccontextmanager
    async def alone(self, scope: Scope, key: str) -> AsyncIterator[bool]:
        """Hold the turn of a key in Redis; in Postgres while Redis is down."""
        holder = self.truth if self._breaker.open else self.front
        async with holder.alone(scope, key) as leading:
            yield leading

    # --- Redis may fail ----------------------------------------------------------------------

    async def _asked(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return what Redis answers; None where it does not. Postgres has it all."""
        try:
            self._breaker.enter()
        except BreakerOpenError:
            work.close()
            return None
        try:
            answer = await work
        except StoreError as error:
            self._breaker.fell()
            _log.debug("Redis is passed by: %s", error)
            return None
        except asyncio.CancelledError:
            self._breaker.left()
            raise
        self._breaker.succeeded()
        return answer

    def _copy_later(self, entry: Entry) -> None:
        if len(self._copying) < _COPYING_MAX:
            task = asyncio.create_task(self._copy(entry))
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)

    async def _copy(self, entry: Entry) -> None:
        await self._asked(self.front.copy(entry))

    # --- what Postgres tells -----------------------------------------------------------------

    async def _listen(self) -> None:
        """Pass on to Redis what was invalidated in Postgres, by whomever."""
        while True:
            try:
                async with aclosing(notices(self._dsn)) as told:
                    async for heard in told:
                        await self.front.heed(heard)
            except StoreError as error:
                _log.warning("invalidations of Postgres do not reach Redis: %s", error)
            await asyncio.sleep(_LISTEN_AGAIN_S)
            # What was said meanwhile is unknown. Nothing stale is served; what was erased must go.
            await self._asked(self.front.forget())


def confirmed(
    standing: Mapping[EntryId, Standing], copies: Mapping[EntryId, Candidate], now: datetime
) -> tuple[Candidate, ...]:
    """Return the copies of what stands, as it stands: servable ones first, then exact ones."""
    found = [
        replace(
            copies[id_],
            current=stands.current,
            entry=replace(copies[id_].entry, state=stands.state),
        )
        for id_, stands in standing.items()
    ]
    return tuple(sorted(found, key=lambda c: (c.entry.expire_at <= now, not c.current)))
