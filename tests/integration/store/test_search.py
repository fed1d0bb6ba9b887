"""Vector search inside a tenant: as good as looking at every row, by plans that stay good."""

from __future__ import annotations

import re

import psycopg
import pytest

from ragcache.store.postgres import PostgresStore
from ragcache.store.queries import queries
from ragcache.store.roles import Dsns
from ragcache.types import Document, TenantId
from tests.crowds import Crowd, bare, crowded, p50_ms, recall, walks
from tests.store_samples import NOW, entry, request, stored


@pytest.mark.timeout(300)
async def test_search_is_as_good_as_looking_at_every_row(fresh_database: Dsns):
    crowd = Crowd(large=2_500, small=50, others=2_000, index_at=2_000)
    store, large, small = await crowded(fresh_database, crowd)
    assert await recall(store, "small", small, 50) == 1.0
    assert await recall(store, "large", large, 100) >= 0.99
    await store.close()  # the server counts what a connection did when it ends
    assert walks(fresh_database) >= 50, "the graph was not walked"


def kept_plan(dsns: Dsns, name: str) -> str:
    """Return the plan that a connection keeps of a statement of a lookup, for whatever values."""
    numbers: dict[str, int] = {}

    def numbered(found: re.Match[str]) -> str:
        return f"${numbers.setdefault(found[1], len(numbers) + 1)}"

    text = re.sub(r"%\((\w+)\)[sb]", numbered, queries("lookup")[name])
    with psycopg.connect(dsns.app) as connection:
        rows = connection.execute(b"EXPLAIN (GENERIC_PLAN) " + text.encode()).fetchall()
    return "\n".join(line for (line,) in rows)


async def test_a_plan_kept_from_when_there_was_little_reads_no_whole_partition(
    fresh_database: Dsns,
):
    """While tables are small it costs little to read a tenant's rows; later it costs all."""
    store = PostgresStore(fresh_database.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    for tenant in ("a", "b", "c"):
        for n in range(4):
            documents = (Document(text=f"d{n}", source=f"s{n}"), Document(text="all", source="s"))
            await stored(store, request(TenantId(tenant), question=f"q{n}", documents=documents))
    await store.close()
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("ANALYZE")
    exact, entries = (kept_plan(fresh_database, name) for name in ("find_exact", "find_entries"))
    for plan in (exact, entries):
        assert re.search(r"lineage_name l_?\d?\b.*\n.*Cond: .*\(entry = ", plan), plan
        assert re.search(r"document d\b.*\n.*Cond: .*\(name = l_?\d?.name\)", plan), plan
    assert re.search(r"entry e_1\b.*\n.*Cond: .*\(exact_key = ", exact), exact
    assert re.search(r"entry e_2\b.*\n.*Cond: .*\(normal_key = ", exact), exact
    assert re.search(r"entry e\b.*\n.*Cond: .*\(id = ANY", entries), entries


@pytest.mark.timeout(300)
async def test_an_exact_lookup_costs_little_more_than_a_bare_transaction(
    postgres: Dsns, store, tenant
):
    asked = request(tenant)
    made = entry(asked)
    assert await store.put(made, await store.snapshot(made.scope, ())) == ""

    calls = {
        "bare": bare(store, tenant),
        "exact": lambda: store.find_exact(made.scope, made.keys, now=NOW),
    }
    await p50_ms(calls, 30)
    taken = await p50_ms(calls, 200)
    assert taken["exact"] <= taken["bare"] * 2.5, taken
