"""Shared answers wait for a second voice; floods, crowds and personal answers are not shared."""

from __future__ import annotations

import asyncio
import json

import psycopg
import pytest

from ragcache.admission import KeyRing
from ragcache.events import Admitted, Degraded
from ragcache.lookup import LookupPolicy
from ragcache.pipeline import Policies
from ragcache.store import purging
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply
from tests.fixtures_pipeline import PATIENT
from tests.store_kinds import KINDS

DOCUMENTS = (Document(text="The fee is 80. The charge is 90.", source="tariff.pdf"),)
ASKED = "What is the demurrage fee?"
REWORDED = "Please tell me what the demurrage fee is"
RIGHT, WRONG = Reply(text="The fee is 80."), Reply(text="The charge is 90.")


def ask(tenant: str, principal: str | None, question: str = ASKED, **fields) -> Request:
    return Request(
        **(
            {"tenant": tenant, "principal": principal, "question": question}
            | {"documents": DOCUMENTS, "sharing": "tenant"}
            | fields
        )
    )


@pytest.fixture
def paraphrased(table):
    table.place(ASKED, 1.0)
    table.place(REWORDED, 0.97)


@pytest.fixture(params=[name for name in KINDS if name != "redis-search"])
def other_store(request):
    """A store of each kind, not open yet."""
    return KINDS[request.param].prepare(request)()


async def test_a_shared_answer_serves_its_writer_alone_until_a_second_voice_agrees(
    make, other_store, upstream, tenant
):
    cache = await make(store=other_store)
    first = await cache.answer(ask(tenant, "ann"))
    assert (first.status.stored, first.status.detail) == (True, "quarantined")
    assert (await cache.answer(ask(tenant, "ann"))).status.hit == "exact"
    second = await cache.answer(ask(tenant, "bob"))
    assert second.status.hit is None
    assert (second.status.stored, second.status.detail) == (True, "promoted")
    assert len(upstream.bodies) == 2
    third = await cache.answer(ask(tenant, "cid"))
    assert third.status.hit == "exact"
    assert len(upstream.bodies) == 2


async def test_a_second_voice_that_says_otherwise_promotes_nothing(
    make, other_store, upstream, tenant
):
    cache = await make(store=other_store)
    upstream.answer(WRONG)
    await cache.answer(ask(tenant, "mallory"))
    upstream.answer(RIGHT)
    honest = await cache.answer(ask(tenant, "ann"))
    assert honest.status.detail == "quarantined"
    upstream.answer(RIGHT)
    other = await cache.answer(ask(tenant, "bob"))
    assert (other.status.hit, other.status.detail) == (None, "promoted")
    assert (await cache.answer(ask(tenant, "cid"))).text == "The fee is 80."


async def test_a_writer_cannot_confirm_himself(make, other_store, upstream, tenant):
    cache = await make(store=other_store)
    upstream.answer(WRONG)
    for question in (ASKED, ASKED.lower(), ASKED + "?"):
        for fields in ({}, {"refresh": True}, {"no_cache": True}):
            upstream.answer(WRONG)
            answer = await cache.answer(ask(tenant, "mallory", question, **fields))
            assert answer.status.detail != "promoted"
    upstream.answer(RIGHT)
    assert (await cache.answer(ask(tenant, "ann"))).text == "The fee is 80."


async def test_answers_of_one_call_are_one_voice(make, upstream, tenant):
    """Two principals who ask at the same moment share one call: its answer confirms nothing."""
    cache = await make()
    upstream.answer(Reply(text="The fee is 80.", delay_s=0.3))
    both = await asyncio.gather(*(cache.answer(ask(tenant, who)) for who in ("ann", "bob")))
    assert len(upstream.bodies) == 1
    assert {answer.status.detail for answer in both} == {"quarantined"}
    await cache.answer(ask(tenant, "cid"))
    assert len(upstream.bodies) == 2


async def test_a_paraphrase_of_a_second_principal_confirms_too(
    make, upstream, tenant, paraphrased, postgres
):
    cache = await make()
    await cache.answer(ask(tenant, "ann"))
    second = await cache.answer(ask(tenant, "bob", REWORDED))
    assert second.status.detail == "promoted"
    with psycopg.connect(postgres.ops) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        rows = connection.execute(
            "SELECT e.id, e.principal, e.state, e.answer FROM ragcache.entry e ORDER BY e.principal"
        ).fetchall()
    (ann, _, waiting, _), (_, _, live, answer) = rows
    assert (waiting, live) == ("quarantined", "live")
    assert answer["confirmed_by"] == [ann], "who confirmed it is kept, and signed"
    assert (await cache.answer(ask(tenant, "cid"))).status.hit == "semantic"


async def test_a_quorum_of_three_wants_three(make, upstream, tenant):
    cache = await make(admission={"quorum": 3})
    details = [
        (await cache.answer(ask(tenant, who))).status.detail for who in ("ann", "bob", "cid")
    ]
    assert details == ["quarantined", "quarantined", "promoted"]


async def test_without_a_quorum_only_the_operator_promotes(make, upstream, tenant, postgres):
    cache = await make(admission={"quorum": 0})
    for who in ("ann", "bob", "cid"):
        assert (await cache.answer(ask(tenant, who))).status.detail == "quarantined"
    waiting = (await cache.answer(ask(tenant, "ann"))).status.entry
    assert purging.promote(postgres.ops, tenant, waiting, reason="reviewed")
    assert (await cache.answer(ask(tenant, "dan"))).status.hit == "exact"


async def test_an_altered_row_is_no_witness(make, upstream, tenant, postgres):
    cache = await make()
    upstream.answer(RIGHT)
    await cache.answer(ask(tenant, "ann"))
    with psycopg.connect(postgres.ops) as connection:
        connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
        connection.execute(
            "UPDATE ragcache.entry SET answer = %s", (json.dumps({"text": WRONG.text}),)
        )
    upstream.answer(WRONG)
    assert (await cache.answer(ask(tenant, "mallory"))).status.detail == "quarantined"


async def test_keys_rotate_and_entries_of_a_dropped_one_are_misses(make, upstream, tenant):
    asked = ask(tenant, "ann")
    old, new = b"the old secret of the test", b"the new secret of the test"
    first = await make(keyring=KeyRing({"k1": old}, "k1"))
    assert (await first.answer(asked)).status.stored
    both = await make(keyring=KeyRing({"k1": old, "k2": new}, "k2"))
    assert (await both.answer(asked)).status.hit == "exact"
    assert (await both.answer(ask(tenant, "ann", "What is the other fee?"))).status.stored
    last = await make(keyring=KeyRing({"k2": new}, "k2"))
    assert (await last.answer(ask(tenant, "ann", "What is the other fee?"))).status.hit == "exact"
    assert (await last.answer(asked)).status.hit is None


async def test_with_quarantine_off_an_answer_serves_everybody_at_once(make, upstream, tenant):
    cache = await make(admission={"quarantine": False})
    assert (await cache.answer(ask(tenant, "ann"))).status.detail == ""
    assert (await cache.answer(ask(tenant, "bob"))).status.hit == "exact"


async def test_a_question_with_a_sentence_beside_it_is_not_shared(make, upstream, tenant):
    cache = await make()
    told = await cache.answer(ask(tenant, "mallory", f"The fee is 80. {ASKED}"))
    assert (told.status.stored, told.status.store_reason) == (False, "canonical_question")
    alone = await cache.answer(ask(tenant, "mallory", f"The fee is 80. {ASKED}", sharing="private"))
    assert alone.status.stored


# --- floods --------------------------------------------------------------------------------------


async def test_a_flood_of_one_principal_is_answered_and_not_stored(make, upstream, tenant, events):
    cache = await make(admission={"writes_at_once": 3, "writes_per_s": 1e-6})
    reasons = [
        (await cache.answer(ask(tenant, "mallory", f"What is fee {n}?"))).status.store_reason
        for n in range(5)
    ]
    assert reasons == ["", "", "", "write_rate", "write_rate"]
    assert (await cache.answer(ask(tenant, "ann"))).status.stored, "others write on"
    assert [e.reason for e in events if isinstance(e, Admitted)].count("write_rate") == 2


async def test_a_flood_of_one_tenant_is_no_flood_of_another(make, upstream, tenant):
    cache = await make(admission={"tenant_writes_at_once": 2, "tenant_writes_per_s": 1e-6})
    reasons = [
        (await cache.answer(ask(tenant, None, f"What is fee {n}?"))).status.store_reason
        for n in range(3)
    ]
    assert reasons == ["", "", "write_rate"]
    assert (await cache.answer(ask(f"{tenant}-b", None))).status.stored


async def test_one_writer_cannot_crowd_a_neighbourhood(make, upstream, tenant, table):
    cache = await make(admission={"neighbourhood": 3})
    for number in range(5):
        question = f"What is the fee of port {number}?"
        table.place(question, 1.0 - number / 1_000)
        answer = await cache.answer(ask(tenant, "mallory", question))
        assert answer.status.store_reason == ("" if number < 3 else "crowded")
    table.place(ASKED, 1.0)
    assert (await cache.answer(ask(tenant, "ann"))).status.stored
    far = await cache.answer(ask(tenant, "mallory", "How long is the quay?"))
    assert far.status.stored


async def stored_hub(cache, table, tenant, **fields) -> None:
    """Store what will come up for everything, and others beside it that do not."""
    table.place("What is the hub of the port?", 1.0)
    await cache.answer(ask(tenant, "ann", "What is the hub of the port?", **fields))
    for number in range(9):
        question = f"What is the fee of berth {number}?"
        table.place(question, 1.0 - number / 300, 1 + number % 3)  # each nearest to the one before
        await cache.answer(ask(tenant, "ann", question, **fields))


async def unanswered(cache, table, tenant, **fields) -> None:
    """Ask nine questions that are at .9 to the stored one and that it does not answer."""
    for number in range(9):
        question = f"How long does cargo {number} lie there?"
        table.place(question, 0.9)
        await cache.answer(ask(tenant, "ann", question, no_store=True, **fields))


async def test_an_entry_that_fits_everything_is_told_of(make, upstream, tenant, table, events):
    cache = await make()
    upstream.answer(RIGHT)
    await stored_hub(cache, table, tenant)
    hubs = [e for e in events if isinstance(e, Degraded) and e.reason == "hub"]
    assert not hubs, "control: ordinary questions"
    await unanswered(cache, table, tenant)
    (hub,) = [e for e in events if isinstance(e, Degraded) and e.reason == "hub"]
    assert hub.part == "lookup"


@pytest.mark.parametrize(
    ("plain", "of_faq", "told"), [(0.95, 0.8, {"faq"}), (0.8, 0.95, {"default"})]
)
async def test_what_is_near_enough_for_a_hub_is_the_namespaces_own_matter(
    make, upstream, tenant, table, events, plain, of_faq, told
):
    cache = await make(
        policies=Policies(
            budgets=PATIENT,
            lookup=LookupPolicy(threshold=plain, uncertified_threshold=0.95),
            lookups={("faq", ""): LookupPolicy(threshold=of_faq, uncertified_threshold=0.95)},
        )
    )
    upstream.answer(RIGHT)
    for namespace in ("faq", "default"):
        await stored_hub(cache, table, tenant, namespace=namespace)
        await unanswered(cache, table, tenant, namespace=namespace)
    hubs = [e for e in events if isinstance(e, Degraded) and e.reason == "hub"]
    assert {each.scope.namespace for each in hubs} == told


# --- personal -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question", ["What is my fee?", "What is the fee of dana@example.test?", "我的费用是多少？"]
)
async def test_a_personal_question_is_its_principals_own_however_it_was_shared(
    make, upstream, tenant, question
):
    cache = await make(admission={"quarantine": False})
    assert (await cache.answer(ask(tenant, "ann", question))).status.stored
    assert (await cache.answer(ask(tenant, "ann", question))).status.hit == "exact"
    assert (await cache.answer(ask(tenant, "bob", question))).status.hit is None


async def test_a_personal_question_of_nobody_in_particular_is_not_stored(make, upstream, tenant):
    cache = await make(admission={"quarantine": False})
    answer = await cache.answer(ask(tenant, None, "What is my fee?"))
    assert (answer.status.stored, answer.status.store_reason) == (False, "personal")


async def test_a_personal_answer_is_not_shared(make, upstream, tenant):
    cache = await make(admission={"quarantine": False})
    upstream.answer(Reply(text="Ask dana@example.test, the fee is 80."))
    answer = await cache.answer(ask(tenant, "ann"))
    assert answer.status.stored is False
    assert answer.status.store_reason in {"personal", "grounding"}


async def test_where_the_policy_allows_it_a_personal_question_is_shared(make, upstream, tenant):
    cache = await make(admission={"quarantine": False, "personal": "allow"})
    await cache.answer(ask(tenant, "ann", "What is my fee?"))
    assert (await cache.answer(ask(tenant, "bob", "What is my fee?"))).status.hit == "exact"
