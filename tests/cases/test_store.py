"""Field cases of the answer cache in Postgres: lifetimes, lineage, embedders, rights, search."""

from __future__ import annotations

import asyncio

import numpy as np
import psycopg
import pytest

from ragcache.errors import VectorError
from ragcache.store import reports
from ragcache.store.maintenance import maintain
from ragcache.store.postgres import PostgresStore
from ragcache.types import Document, Request, TenantId
from tests.doubles.embedder import TableEmbedder
from tests.doubles.upstream import Reply
from tests.store_samples import NOW, entry, request, scope, unit

D1 = Document(text="Demurrage is 80 per day.", id="d1", source="tariff.pdf")
D2 = Document(text="Free time is 4 days.", id="d2", source="terms.pdf")
D3 = Document(text="Claims go to the desk.", id="d3", source="claims.pdf")
ONE, TWO = "What is the demurrage fee?", "Where do claims go?"
REPLIES = {ONE: Reply(text="It is 80 per day."), TWO: Reply(text="Claims go to the desk.")}


def ask(tenant: str, question: str = ONE, **fields) -> Request:
    fields.setdefault("documents", (D1, D2) if question == ONE else (D3,))
    return Request(tenant=tenant, question=question, **fields)


def reply(body):
    """Answer from the documents of the question."""
    text = str(body["messages"])
    return next(answer for question, answer in REPLIES.items() if question in text)


# --- lifetimes -----------------------------------------------------------------------------------


async def test_C04_popular_entries_expire(make, upstream, tenant, clock, postgres):
    cache = await make()
    upstream.answer(REPLIES[ONE])
    asked = ask(tenant, ttl_s=60.0)
    start = clock.now
    assert (await cache.answer(asked)).status.hit is None
    seen = []
    for moment in (30.0, 50.0, 59.9, 60.0, 61.0):
        clock.advance((start - clock.now).total_seconds() + moment)
        seen.append((await cache.answer(asked)).status.hit)
        (row,) = reports.entries(postgres.ops, tenant)
        assert (row["expire_at"] - start).total_seconds() == (60 if moment < 60 else 120)
    assert seen == ["exact", "exact", "exact", None, "exact"]
    assert len(upstream.bodies) == 2


# --- lineage -------------------------------------------------------------------------------------


@pytest.fixture
async def answered(make, upstream, tenant):
    """A cache with two stored answers: one from d1 and d2, one from d3."""
    cache = await make()
    upstream.script = reply
    for question in (ONE, TWO):
        assert (await cache.answer(ask(tenant, question))).status.stored
    return cache


async def hits(cache, tenant, **fields) -> list[str | None]:
    answers = [await cache.answer(ask(tenant, q, no_store=True, **fields)) for q in (ONE, TWO)]
    return [answer.status.hit for answer in answers]


async def test_C06_a_changed_document_kills_its_answers_and_no_other(answered, tenant):
    assert await hits(answered, tenant) == ["exact", "exact"]
    assert await answered.documents.changed(tenant, ["d2"]) == 1
    assert await hits(answered, tenant) == [None, "exact"]


async def test_C06_an_id_given_out_anew_inherits_nothing(answered, tenant):
    await answered.documents.removed(tenant, ["d2"])
    reused = Document(text="The cafeteria opens at nine.", id="d2", source="menu.pdf")
    answer = await answered.answer(ask(tenant, documents=(D1, reused), no_store=True))
    assert answer.status.hit is None
    assert await hits(answered, tenant) == [None, "exact"]


async def test_C06_an_epoch_kills_everything_of_the_version(answered, tenant):
    await answered.epoch.bump(tenant)
    assert await hits(answered, tenant) == [None, None]


async def test_C06_an_answer_begun_before_a_change_is_not_served_after_it(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(text="It is 80 per day.", delay_s=0.3))
    asking = asyncio.create_task(cache.answer(ask(tenant)))
    while not upstream.bodies:
        await asyncio.sleep(0.01)
    await cache.documents.changed(tenant, ["d1"])
    answer = await asking
    assert answer.text == "It is 80 per day."
    assert answer.status.stored is False
    assert (await cache.answer(ask(tenant, no_store=True))).status.hit is None


async def test_C06_an_unknown_document_is_no_error(answered, tenant):
    assert await answered.documents.changed(tenant, ["never seen"]) == 0
    assert await hits(answered, tenant) == ["exact", "exact"]


# --- embedders -----------------------------------------------------------------------------------


async def test_C09_vectors_of_another_embedder_are_never_compared(make, upstream, tenant, postgres):
    upstream.script = reply

    def embedder(name):
        made = TableEmbedder(name)
        for question in (ONE, TWO):  # every embedder gives both the very same vector
            made.place(question, 1.0)
        return made

    lookup = {"gates": "off", "evidence": False}
    first = await make(embedder=embedder("M1"), lookup=lookup)
    await first.answer(ask(tenant))
    for other in ("M2", "M1 task=document"):
        cache = await make(embedder=embedder(other), lookup=lookup)
        assert (await cache.answer(ask(tenant, TWO, no_store=True))).status.hit is None
    near = await make(embedder=embedder("M1"), lookup=lookup)
    assert (await near.answer(ask(tenant, TWO, no_store=True))).status.hit == "semantic"
    assert (await near.answer(ask(tenant))).status.hit == "exact"
    assert reports.stats(postgres.ops, now=NOW, tenant=tenant).embedders == {"M1": 1}


# --- rights --------------------------------------------------------------------------------------


async def test_T01_every_read_of_entries_names_the_tenant(make, upstream, tenant, monkeypatch):
    seen = []
    execute = psycopg.AsyncConnection.execute

    async def noted(self, query, *arguments, **options):
        text = query.as_string(self) if hasattr(query, "as_string") else query
        seen.append(text if isinstance(text, str) else text.decode())
        return await execute(self, query, *arguments, **options)

    cache = await make()
    upstream.answer(REPLIES[ONE])
    await cache.answer(ask(tenant, "first of all"))
    monkeypatch.setattr(psycopg.AsyncConnection, "execute", noted)
    await cache.answer(ask(tenant))
    await cache.answer(ask(tenant))
    reads = [text for text in seen if "FROM ragcache.entry e" in text]
    assert len(reads) >= 3
    assert all("e.tenant = %(tenant)s" in text for text in reads)


async def test_T03_restricted_answers_need_every_right_of_their_documents(make, upstream, tenant):
    cache = await make(admission={"quarantine": False})
    secret = Document(text="The redundancy budget is 2.1 M.", id="hr-7", access={"hr"})
    public = Document(text="Budgets are reviewed yearly.", id="pub-1")
    question = "What is the redundancy budget?"

    async def asked(principal, documents, access=()):
        return await cache.answer(
            Request(
                tenant=tenant,
                principal=principal,
                question=question,
                documents=documents,
                access=frozenset(access),
                sharing="tenant",
            )
        )

    upstream.answer(Reply(text="It is 2.1 M."), Reply(text="Budgets are reviewed yearly."))
    assert (await asked("u1", (secret,), {"hr"})).status.stored
    refused = await asked("u2", (public,))
    assert refused.status.hit is None
    assert "2.1" not in refused.text
    assert (await asked("u3", (secret,), {"hr"})).status.hit == "exact"


async def test_T03_an_entry_asks_for_the_rights_of_its_documents_whatever_its_partition(
    store, tenant
):
    """Even inside one partition: the documents' own tags decide."""
    made = entry(
        request(tenant, documents=(Document(text="x", source="s", access={"hr", "board"}),)),
        scope=scope(request(tenant, access={"hr"})),
    )
    assert await store.put(made, await store.snapshot(made.scope, ())) == ""
    assert not await store.find_exact(made.scope, made.keys, now=NOW)
    assert not await store.find_similar(made.scope, made.vector, embedder="E", now=NOW, limit=1)


async def test_T03_a_question_with_an_address_is_not_shared(make, upstream, tenant):
    cache = await make(admission={"quarantine": False})
    upstream.answer(Reply(text="Free time is 4 days."))

    async def asked(principal):
        return await cache.answer(
            Request(
                tenant=tenant,
                principal=principal,
                question="Refund for dana@example.test?",
                documents=(D2,),
            )
        )

    await asked("u1")
    assert (await asked("u2")).status.hit is None


# --- vectors -------------------------------------------------------------------------------------


async def test_V01_rows_with_unsound_vectors_never_hit(store, tenant, postgres):
    """Whatever got into the table in spite of everything, NaN is not taken for likeness."""
    sound = entry(request(tenant, question="e2"), vector=unit(1.0), embedder="V")
    zero = entry(request(tenant, question="e1"), vector=unit(0.5, 1.0), embedder="V")
    for made in (sound, zero):
        assert await store.put(made, await store.snapshot(made.scope, ())) == ""
    with psycopg.connect(postgres.app, autocommit=True) as connection, connection.transaction():
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        connection.execute(
            "UPDATE ragcache.entry SET embedding = '[0,0,0,0,0,0,0,0]' WHERE id = %s", (zero.id,)
        )
    found = await store.find_similar(sound.scope, unit(1.0), embedder="V", now=NOW, limit=5)
    assert [c.entry.id for c in found if c.similarity >= 0.0] == [sound.id]
    assert all(c.similarity == c.similarity for c in found), "a similarity is NaN"
    for vector in (np.zeros(8), np.full(8, np.nan), np.ones(3)):
        with pytest.raises(VectorError):
            await store.find_similar(sound.scope, vector, embedder="V", now=NOW, limit=5)


@pytest.mark.timeout(300)
async def test_V02_the_search_does_not_end_before_this_tenants_row(fresh_database):
    """Three thousand nearer rows of another tenant, and as many expired ones of its own."""
    store = PostgresStore(fresh_database.app, pool_wait_s=10, lookup_timeout_s=10)
    await store.open()
    crowd, small, stale = TenantId("crowd"), TenantId("small"), TenantId("stale")
    mine = entry(request(small), vector=unit(1.0, 0.325))
    live = entry(request(stale), vector=unit(1.0, 0.325))
    for made in (mine, live):
        assert await store.put(made, await store.snapshot(made.scope, ())) == ""
    fill(fresh_database, crowd, scope(request(crowd)).partition, expired=False)
    fill(fresh_database, stale, live.scope.partition, expired=True)
    for indexed in (False, True):
        if indexed:
            built = maintain_without_sweep(fresh_database)
            assert len(built) == 2
        for made in (mine, live):
            found = await store.find_similar(made.scope, unit(1.0), embedder="E", now=NOW, limit=3)
            assert [c.entry.id for c in found] == [made.id], (made.scope.tenant, indexed)
            assert found[0].similarity == pytest.approx(0.951, abs=1e-3)
    async with store._pool.connection() as connection:
        left = await (
            await connection.execute("SELECT current_setting('hnsw.iterative_scan', true)")
        ).fetchone()
    assert left[0] in (None, "", "off")
    await store.close()


def fill(dsns, tenant: str, partition: str, *, expired: bool) -> None:
    """Add 3,000 rows very near to the query."""
    random = np.random.default_rng(11)
    vectors = np.zeros((3000, 8), dtype=np.float32)
    vectors[:, 0] = 1.0
    vectors[:, 2:] = random.normal(scale=0.01, size=(3000, 6))
    with psycopg.connect(dsns.ops) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        template = scope(request(tenant))
        connection.cursor().executemany(
            "INSERT INTO ragcache.entry (tenant, id, principal, sharing, namespace, partition,"
            " exact_key, normal_key, question, answer, state, created_at, expire_at, changed_at,"
            " epoch, embedder, embedding) VALUES (%s, %s, %s, %s, 'default', %s, %s, %s, 'q',"
            " '{}', 'live', %s, %s, %s, 0, 'E', %s::vector)",
            [
                (
                    tenant,
                    f"{tenant}-{n}",
                    tenant,
                    template.group,
                    partition,
                    f"k{n}",
                    f"n{n}",
                    NOW,
                    NOW if expired else NOW.replace(year=2032),
                    NOW,
                    str(vector.tolist()),
                )
                for n, vector in enumerate(vectors)
            ],
        )
        connection.execute(
            "INSERT INTO ragcache.namespace VALUES (%s, 'default') ON CONFLICT DO NOTHING",
            (tenant,),
        )


def maintain_without_sweep(dsns):
    """Build the vector indexes at a time when nothing has expired yet."""
    return maintain(dsns.ops, now=NOW.replace(year=2030), index_at=2000).built
