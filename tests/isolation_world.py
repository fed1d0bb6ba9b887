"""A small world of tenants who share everything but their name.

Every tenant uses the same keys, the same partition, the same vectors and the same document
names, so that only the tenant itself can keep them apart. The world remembers what each of them
has stored; an operation that returns anything else is a leak.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg

from ragcache.errors import StoreError
from ragcache.protocols import Store
from ragcache.store.errors import translated
from ragcache.store.locks import lock_number
from ragcache.store.postgres import PostgresStore
from ragcache.store.session import transaction
from ragcache.types import Candidate, Document, Entry, PrincipalId, Scope, TenantId
from tests.store_samples import NOW, entry, keys, request, scope, unit

TENANTS = 3
QUESTIONS = 3
_ASKED = [
    request("anybody", question=f"q{n}", documents=(Document(text=f"d{n}", source=f"s{n}"),))
    for n in range(QUESTIONS)
]
#: One partition and one set of keys for all: nothing but the tenant tells them apart.
_SCOPE = scope(_ASKED[0])
_WHAT = range(QUESTIONS)
_KEYS = [keys(asked) for asked in _ASKED]


#: Whatever the role may read in the schema: tables, partitions and views alike.
_READABLE = """
SELECT 'ragcache.' || c.relname FROM pg_class c
 WHERE c.relnamespace = 'ragcache'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
   AND has_table_privilege(c.oid, 'SELECT')
   AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant')
"""


class Leak(AssertionError):
    """A tenant has seen what is not theirs."""


class World:
    """Stores under test, the tenants' names, and what each tenant has stored.

    Args:
        stores: Several ways to the same entries: a pool of connections, a pooler.
        admin_dsn: To break connections off.
        databases: Stores whose tables are read around; those of `stores` where none is given.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        admin_dsn: str = "",
        *,
        databases: Sequence[PostgresStore] | None = None,
    ) -> None:
        self.stores = stores
        self.admin_dsn = admin_dsn
        given = [store for store in stores if isinstance(store, PostgresStore)]
        self.databases = given if databases is None else databases
        mark = self._mark = secrets.token_hex(6)
        # Names that run into each other when somebody joins them unframed.
        self.names = [f"{mark}", f"{mark}:a", f"{mark}:a:b", f"{mark} "]
        self.stored: dict[tuple[int, int], str | None] = {}
        self.operations = 0
        self.hits = 0
        self._numbers = itertools.count()
        # The same ids in every tenant: a key that leaves the tenant out would collide.
        self._ids = {(who, what): itertools.count() for who in range(TENANTS) for what in _WHAT}

    def scope(self, who: int) -> Scope:
        """Return the scope of a tenant: all of them alike, the name aside."""
        return replace(
            _SCOPE, tenant=TenantId(self.names[who]), principal=PrincipalId("same"), group="tenant"
        )

    def _entry(self, who: int, what: int) -> Entry:
        return entry(
            _ASKED[what],
            id=f"{self._mark}-{what}-{next(self._ids[who, what])}",
            scope=self.scope(who),
            keys=_KEYS[what],
            answer={"text": f"{self.names[who]}/{next(self._numbers)}"},
            vector=unit(1.0, 0.3 * what),
            expire_at=NOW + timedelta(days=1),
        )

    # --- operations ------------------------------------------------------------------------

    async def put(self, store: Store, who: int, what: int) -> None:
        """Store an answer."""
        made = self._entry(who, what)
        self.stored[who, what] = None  # unknown until the store has said so
        outcome = await store.put(made, await store.snapshot(made.scope, _ASKED[what].documents))
        if outcome:
            raise Leak(f"{self.names[who]!r} could not store: {outcome}, but its keys are its own")
        self.stored[who, what] = made.answer["text"]

    async def find(self, store: Store, who: int, what: int) -> None:
        """Look under the exact key."""
        found = await store.find_exact(self.scope(who), _KEYS[what], now=NOW)
        self._judge(who, [c for c in found if c.current])
        self._expect(who, what, found)

    async def find_similar(self, store: Store, who: int, what: int) -> None:
        """Look for the nearest."""
        found = await store.find_similar(
            self.scope(who), unit(1.0, 0.3 * what), embedder="E", now=NOW, limit=QUESTIONS
        )
        self._judge(who, found)
        if store.has_vectors:
            self._expect(who, what, found)

    async def take_turns(self, store: Store, who: int, whose: int) -> None:
        """Call for two tenants at once: neither waits for the other."""
        key = f"{self._mark}-turn"
        async with (
            store.alone(self.scope(who), key) as one,
            store.alone(self.scope(whose), key) as other,
        ):
            if who != whose and not (one and other):
                raise Leak(f"{self.names[whose]!r} waits for {self.names[who]!r}")

    async def change(self, store: Store, who: int, what: int) -> None:
        """Change a document of one tenant."""
        self._unknown(who, what)
        await store.change(TenantId(self.names[who]), [f"s{what}"])
        self.stored.pop((who, what), None)

    async def bump(self, store: Store, who: int) -> None:
        """Bump one tenant's epoch."""
        self._unknown(who)
        await store.bump_epoch(TenantId(self.names[who]), _SCOPE.namespace)
        self._forget(who)

    async def purge(self, store: Store, who: int) -> None:
        """Remove one tenant."""
        self._unknown(who)
        await store.purge(TenantId(self.names[who]))
        self._forget(who)

    async def read_all(self, store: PostgresStore, who: int) -> None:
        """Read without a condition, as a statement would that forgot it."""
        tenant = TenantId(self.names[who])
        async with transaction(store._pool, tenant, timeout_s=10) as connection:
            cursor = await connection.execute(_READABLE)
            for (table,) in await cursor.fetchall():
                cursor = await connection.execute(f"SELECT DISTINCT tenant FROM {table}")
                seen = {name for (name,) in await cursor.fetchall()}
                if seen - {tenant}:
                    raise Leak(f"{tenant!r} sees rows of {seen - {tenant}} in {table}")

    async def read_stray(self, store: PostgresStore) -> None:
        """Read on a borrowed connection that was given no tenant."""
        async with store._pool.connection() as connection:
            cursor = await connection.execute("SELECT count(*) FROM ragcache.entry")
            ((count,),) = await cursor.fetchall()
            if count:
                raise Leak(f"{count} rows are visible without a tenant")

    async def write_foreign(self, store: PostgresStore, who: int, whose: int) -> None:
        """Try to write a row of another tenant."""
        if who == whose:
            return
        tenant, other = TenantId(self.names[who]), self.names[whose]
        try:
            async with transaction(store._pool, tenant, timeout_s=10) as connection:
                await connection.execute(
                    "INSERT INTO ragcache.document (tenant, name) VALUES (%s, 'planted')"
                    " ON CONFLICT DO NOTHING",
                    (other,),
                )
        except StoreError:
            return
        raise Leak(f"{tenant!r} wrote a row of {other!r}")

    def lock(self, who: int, whose: int) -> None:
        """Neither two tenants nor two principals ever wait for one lock."""
        self.operations += 1
        key = _KEYS[0].exact
        number = lock_number(self.scope(who), key)
        if who != whose and number == lock_number(self.scope(whose), key):
            raise Leak("two tenants share a lock")
        # Two scopes that are one text when their parts are joined with a colon.
        private = replace(self.scope(who), group="principal:ann")
        one, other = replace(private, namespace="x:y"), replace(private, group="principal:ann:x")
        if lock_number(one, key) == lock_number(replace(other, namespace="y"), key):
            raise Leak("two principals share a lock")

    async def cancelled(self, store: Store, who: int, what: int, ticks: int) -> None:
        """Begin to store and to look, and leave after so many turns of the loop."""
        self.stored[who, what] = None
        for operation in (self.put, self.find, self.find_similar):
            task = asyncio.create_task(operation(store, who, what))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError, StoreError):
                await task

    def break_connections(self) -> None:
        """Break every connection of the app role off, as a failing server does."""
        with psycopg.connect(self.admin_dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE usename = 'ragcache_app' AND datname = current_database()"
            )

    # --- judging ---------------------------------------------------------------------------

    def _judge(self, who: int, found: Sequence[Candidate]) -> None:
        for candidate in found:
            owner = str(candidate.entry.answer["text"]).rsplit("/", 1)[0]
            if owner != self.names[who] or candidate.entry.scope.tenant != self.names[who]:
                raise Leak(f"{self.names[who]!r} was served an answer of {owner!r}")

    def _expect(self, who: int, what: int, found: Sequence[Candidate]) -> None:
        """What a tenant has stored must be found: a store that finds nothing leaks nothing."""
        expected = self.stored.get((who, what), "")
        texts = {c.entry.answer["text"] for c in found if c.current}
        if expected:
            assert expected in texts, f"{expected!r} was stored and is not found"
            self.hits += 1

    def _unknown(self, who: int, what: int | None = None) -> None:
        for place in self.stored:
            if place[0] == who and what in (None, place[1]):
                self.stored[place] = None

    def _forget(self, who: int) -> None:
        for place in [place for place in self.stored if place[0] == who]:
            del self.stored[place]

    async def run(self, name: str, *arguments: Any) -> None:
        """Run an operation; a connection that was broken off is no leak."""
        self.operations += 1
        with suppress(StoreError), translated():
            outcome = getattr(self, name)(*arguments)
            if asyncio.iscoroutine(outcome):
                await outcome


async def hunt(world: World, operations: int, seed: int = 0) -> AssertionError | None:
    """Run random operations until one leaks, or loses an answer; return what was seen."""
    dice = random.Random(seed)
    for _ in range(operations):
        store = dice.choice(world.stores)
        who, whose, what = dice.randrange(TENANTS), dice.randrange(TENANTS), dice.choice(_WHAT)
        choices: list[tuple[Any, ...]] = [
            ("put", store, who, what),
            ("find", store, who, what),
            ("find_similar", store, who, what),
            ("take_turns", store, who, whose),
        ]
        if world.databases:
            database = dice.choice(world.databases)
            choices += [
                ("read_all", database, who),
                ("read_stray", database),
                ("write_foreign", database, who, whose),
                ("lock", who, whose),
            ]
        operation, *arguments = dice.choice(choices)
        try:
            await world.run(operation, *arguments)
        except AssertionError as leak:
            return leak
    return None
