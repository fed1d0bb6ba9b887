"""Rows altered in the database itself: whatever byte is flipped, nothing of them is served."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import sql

from ragcache.lookup import read
from ragcache.store.postgres import PostgresStore
from ragcache.store.redis import places
from ragcache.store.redis.store import RedisStore
from ragcache.types import Document, Embedding, Entry
from tests.fixtures_pipeline import KEYRING
from tests.store_samples import NOW, entry, request, unit

QUESTION = "What is the demurrage fee per day in 2031?"
DOCUMENT = Document(text="The fee is 80 per day.", source="tariff.pdf", id="t1")
#: Columns of an entry's row that are signed, those of the scope aside.
COLUMNS = (
    *("principal", "partition", "exact_key", "normal_key", "question", "answer", "reading"),
    *("created_at", "expire_at", "version", "model", "embedder", "kid", "signature"),
)
LINES = ("names", "content", "raw", "rank", "cited", "access")


async def signed_and_stored(store, tenant: str) -> Entry:
    asked = request(
        tenant, question=QUESTION, documents=(DOCUMENT,), version="v7", sharing="tenant"
    )
    vector = unit(1.0, 0.5)
    made = entry(
        asked,
        answer={"text": "The fee is 80 per day [12].", "usage": {"input_tokens": 7}},
        reading=read(QUESTION, Embedding(text=QUESTION, vector=vector)).as_json(),
        vector=vector,
        version="v7",
        model="m",
    )
    made = KEYRING.sign(made)
    assert await store.put(made, await store.snapshot(made.scope, (DOCUMENT,))) == ""
    return made


async def is_served(store, made: Entry) -> bool:
    found = await store.find_exact(made.scope, made.keys, now=NOW)
    near = await store.find_similar(
        made.scope, made.vector, embedder=made.embedder, now=NOW, limit=5
    )
    return any(KEYRING.verify(c.entry) and c.entry.expire_at > NOW for c in (*found, *near))


def flips(raw: bytes, every: int) -> Iterator[bytes]:
    for at in range(0, len(raw), every):
        flipped = bytearray(raw)
        flipped[at] ^= 1
        yield bytes(flipped)


class Row:
    """One entry's row, and how to alter it as somebody with the database in hand would."""

    def __init__(self, connection: psycopg.AsyncConnection, made: Entry) -> None:
        self.connection = connection
        self.made = made

    async def value(self, table: str, column: str) -> tuple[bytes, str]:
        """Return a column's bytes and its type; as text, where it has no bytes of its own."""
        query = sql.SQL("SELECT {c}, {c}::text, pg_typeof({c})::text FROM ragcache.{t}").format(
            c=sql.Identifier(column), t=sql.Identifier(table)
        )
        cursor = await self.connection.execute(query)
        ((value, text, kind),) = await cursor.fetchall()
        return (bytes(value) if kind == "bytea" else text.encode()), kind

    async def put(self, table: str, column: str, raw: bytes, kind: str) -> bool:
        """Write the bytes into the column; return whether the database took them."""
        value = raw if kind == "bytea" else raw.decode("utf-8", "replace")
        update = sql.SQL("UPDATE ragcache.{t} SET {c} = {v}::{k}").format(
            t=sql.Identifier(table), c=sql.Identifier(column), v=sql.Literal(value), k=sql.SQL(kind)
        )
        try:
            async with self.connection.transaction():
                await self.connection.execute(update)
        except psycopg.Error:
            return False
        return True


@asynccontextmanager
async def row_of(postgres, made: Entry) -> AsyncIterator[Row]:
    async with await psycopg.AsyncConnection.connect(postgres.ops, autocommit=True) as connection:
        await connection.execute(
            "SELECT set_config('ragcache.tenant', %s, false)", (made.scope.tenant,)
        )
        yield Row(connection, made)


async def flipped_in_postgres(postgres, tenant: str, every: int) -> tuple[int, int]:
    """Return how many flips the database took, and after how many something was served."""
    store = PostgresStore(postgres.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    taken = kept = 0
    try:
        made = await signed_and_stored(store, tenant)
        assert await is_served(store, made), "control: as it was signed it is served"
        async with row_of(postgres, made) as row:
            for table, columns in (("entry", COLUMNS), ("lineage", LINES)):
                for column in columns:
                    before, kind = await row.value(table, column)
                    for raw in flips(before, every if len(before) > 64 else 1):
                        if not await row.put(table, column, raw, kind):
                            continue
                        if await row.value(table, column) == (before, kind):
                            continue  # another spelling of the same moment
                        taken += 1
                        served = await is_served(store, made)
                        kept += served
                        if served:
                            print(table, column, before, raw)
                    assert await row.put(table, column, before, kind)
        assert await is_served(store, made), "control: put back, it is served again"
    finally:
        await store.close()
    return taken, kept


async def test_no_flipped_byte_of_a_signed_column_is_served_from_postgres(postgres, tenant):
    taken, kept = await flipped_in_postgres(postgres, tenant, every=97)
    assert taken > 300
    assert kept == 0


@pytest.mark.prove
async def test_no_flipped_byte_at_all_is_served_from_postgres(postgres, tenant):
    taken, kept = await flipped_in_postgres(postgres, tenant, every=1)
    print(f"{taken} flips, {kept} served")
    assert taken > 700
    assert kept == 0


async def flipped_in_redis(server, tenant: str, every: int) -> tuple[int, int]:
    store = RedisStore(server.dsn, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    taken = kept = 0
    try:
        made = await signed_and_stored(store, tenant)
        key = f"{places.prefix(tenant)}e:{made.id}"
        with server.client() as client:
            before = client.hgetall(key)
            assert await is_served(store, made), "control: as it was signed it is served"
            for raw in flips(before[b"body"], every):
                client.hset(key, mapping={**before, b"body": raw})
                taken += 1
                kept += await is_served(store, made)
            client.hset(key, mapping=before)
            assert await is_served(store, made), "control: put back, it is served again"
    finally:
        await store.close()
    return taken, kept


async def test_no_flipped_byte_of_an_entry_is_served_from_redis(redis_sets, tenant):
    taken, kept = await flipped_in_redis(redis_sets, tenant, every=5)
    assert taken > 200
    assert kept == 0


@pytest.mark.prove
async def test_no_flipped_byte_at_all_is_served_from_redis(redis_sets, tenant):
    taken, kept = await flipped_in_redis(redis_sets, tenant, every=1)
    print(f"{taken} flips, {kept} served")
    assert kept == 0


async def test_bad_rows_in_the_database_are_misses_and_no_error(postgres, tenant, data_dir):
    rows = json.loads((data_dir / "security/bad_rows.json").read_text())["rows"]
    store = PostgresStore(postgres.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    made = await signed_and_stored(store, tenant)
    async with row_of(postgres, made) as row:
        for column in ("answer", "reading"):
            before, kind = await row.value("entry", column)
            for bad in rows:
                if await row.put("entry", column, json.dumps(bad["payload"]).encode(), kind):
                    assert not await is_served(store, made), bad["name"]
            await row.put("entry", column, before, kind)
    assert await is_served(store, made)
    await store.close()
