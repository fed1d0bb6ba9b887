"""Semantic hits are verified in the background, and wrong ones are taken out of service."""

from __future__ import annotations

import asyncio

import pytest

from ragcache.errors import StoreUnavailableError
from ragcache.events import Degraded, Judged
from ragcache.lookup import GuardPolicy, Judgement
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = (Document(text="The fee is 80. The charge is 90.", source="tariff.pdf"),)
STORED = "What is the demurrage fee?"
ASKED = "Please tell me what the demurrage fee is"


def ask(tenant: str, question: str = ASKED, **fields) -> Request:
    return Request(tenant=tenant, question=question, documents=DOCUMENTS, **fields)


@pytest.fixture
def paraphrased(table):
    table.place(STORED, 1.0)
    table.place(ASKED, 0.97)
    table.place("So what is the demurrage fee please?", 0.96)


async def store(cache, upstream, tenant) -> None:
    upstream.answer(Reply(text="The fee is 80."))
    await cache.answer(ask(tenant, STORED))


async def test_a_verified_hit_that_agrees_is_judged_and_its_call_counted(
    make, upstream, tenant, events, paraphrased
):
    cache = await make(draw=lambda: 0.0)
    await store(cache, upstream, tenant)
    answer = await cache.answer(ask(tenant))
    assert answer.status.hit == "semantic"
    assert answer.status.certified is False
    await cache._parts.settled()
    (judged,) = [e for e in events if isinstance(e, Judged)]
    assert judged.agreed
    assert judged.usage.input_tokens == 100
    assert len(upstream.bodies) == 2
    standing = cache.standing(ask(tenant))
    assert (standing.judged, standing.wrong, standing.certified) == (1, 0, False)


async def test_without_the_draw_nothing_is_verified(make, upstream, tenant, events, paraphrased):
    cache = await make()
    await store(cache, upstream, tenant)
    assert (await cache.answer(ask(tenant))).status.hit == "semantic"
    await cache._parts.settled()
    assert len(upstream.bodies) == 1
    assert not [e for e in events if isinstance(e, Judged)]


async def test_a_hit_that_proves_wrong_is_not_served_again(
    make, upstream, tenant, events, paraphrased
):
    cache = await make(draw=lambda: 0.0)
    await store(cache, upstream, tenant)
    upstream.answer(Reply(text="The charge is 90."))
    assert (await cache.answer(ask(tenant))).text == "The fee is 80."
    await cache._parts.settled()
    assert [e.agreed for e in events if isinstance(e, Judged)] == [False]
    again = await cache.answer(ask(tenant, STORED, no_store=True))
    assert again.status.hit is None
    assert again.text == "The charge is 90."


async def test_a_verification_that_fails_is_no_verdict(make, upstream, tenant, events, paraphrased):
    cache = await make(draw=lambda: 0.0)
    await store(cache, upstream, tenant)
    upstream.answer(Reply(status=500))
    assert (await cache.answer(ask(tenant))).status.hit == "semantic"
    await cache._parts.settled()
    assert not [e for e in events if isinstance(e, Judged)]
    assert [e.reason for e in events if isinstance(e, Degraded)] == ["verification"]
    assert (await cache.answer(ask(tenant))).status.hit == "semantic"


async def test_a_reported_hit_is_taken_out_of_service(make, upstream, tenant, events, paraphrased):
    cache = await make()
    await store(cache, upstream, tenant)
    hit = await cache.answer(ask(tenant))
    assert cache.report_bad(hit)
    await cache._parts.settled()
    assert [(e.by, e.agreed) for e in events if isinstance(e, Judged)] == [("feedback", False)]
    assert (await cache.answer(ask(tenant, no_store=True))).status.hit is None
    assert not cache.report_bad(hit)


async def test_a_candidate_below_the_threshold_is_judged_for_nothing(make, upstream, tenant, table):
    guard = GuardPolicy(floor=0.8, uncertified=0.98)
    cache = await make(guard=guard, lookup={"threshold": 0.8, "uncertified_threshold": 0.98})
    table.place(STORED, 1.0)
    table.place(ASKED, 0.9)
    await store(cache, upstream, tenant)
    answer = await cache.answer(ask(tenant, no_store=True))
    assert answer.status.reason == "below_threshold"
    evidence = cache._guarding._state.levels[""]
    assert (evidence.judged.sum(), evidence.wrong.sum()) == (1.0, 0.0)
    assert evidence.hits_judged == 0


async def test_where_no_threshold_keeps_the_bound_hits_go_off_and_the_operator_is_told_once(
    make, upstream, tenant, events, table
):
    cache = await make(draw=lambda: 0.0, guard=GuardPolicy(floor=0.9, uncertified=0.9, enough=3))
    for number in range(40):
        stored, asked = (
            f"What is the fee of port {number}?",
            f"So what is the fee of port {number}?",
        )
        table.place(stored, 1.0, number % 4)
        table.place(asked, 0.995, number % 4)
        upstream.answer(Reply(text="The fee is 80."))
        await cache.answer(ask(tenant, stored))
        upstream.answer(Reply(text="The charge is 90."))
        await cache.answer(ask(tenant, asked))
        await cache._parts.settled()
        if cache.standing(ask(tenant)).off:
            break
    assert cache.standing(ask(tenant)).off
    table.place(STORED, 1.0)
    table.place(ASKED, 0.999)
    await cache.answer(ask(tenant, STORED))
    assert (await cache.answer(ask(tenant))).status.reason == "guard_off"
    told = [e for e in events if isinstance(e, Degraded) and e.reason == "off"]
    assert len(told) == 1
    assert "calibrate" in told[0].detail


async def test_what_was_learned_outlives_the_process(make, upstream, tenant, paraphrased):
    first = await make(draw=lambda: 0.0)
    await store(first, upstream, tenant)
    await first.answer(ask(tenant))
    await first._parts.settled()
    await first._parts.settled()
    second = await make()
    assert second.standing(ask(tenant)).judged == 1


async def test_two_processes_count_together_and_neither_writes_over_the_other(
    make, upstream, tenant, paraphrased
):
    one, other = await make(draw=lambda: 0.0), await make(draw=lambda: 0.0)
    await store(one, upstream, tenant)
    for cache in (one, other, one, other, other):
        assert (await cache.answer(ask(tenant))).status.hit == "semantic"
        await cache._parts.settled()
    for cache in (one, other):
        await cache._guarding.hand_in()
        assert cache.standing(ask(tenant)).judged == 5
    late = await make()
    assert late.standing(ask(tenant)).judged == 5
    assert late._guarding._state.levels[""].hits == 5
    assert late._guarding._state.verifications == 5


async def test_processes_that_hand_in_at_once_lose_nothing(make, upstream, tenant, paraphrased):
    caches = [await make() for _ in range(4)]
    await store(caches[0], upstream, tenant)
    for cache in caches:
        for _ in range(5):
            await cache.answer(ask(tenant))
    await asyncio.gather(*(cache._guarding.hand_in() for cache in caches))
    for cache in caches:
        await cache._guarding.hand_in()
    assert {cache._guarding._state.levels[""].hits for cache in caches} == {20}


async def test_what_was_seen_while_the_store_was_away_is_handed_in_later(
    make, upstream, tenant, paraphrased
):
    cache = await make()
    await store(cache, upstream, tenant)
    await cache._parts.settled()
    recall = cache.store.recall

    async def away(*_, **__):
        raise StoreUnavailableError("away")

    cache.store.recall = away
    await cache.answer(ask(tenant))
    with pytest.raises(StoreUnavailableError):
        await cache._guarding.hand_in()
    cache.store.recall = recall
    await cache._guarding.hand_in()
    assert (await make())._guarding._state.levels[""].hits == 1


async def test_small_tenants_of_one_deployment_are_certified_together(
    make, upstream, tenant, paraphrased
):
    cache = await make()
    for at in range(50):
        asking = cache._asking(ask(f"{tenant}-{at}"), cache.target)
        for _ in range(13):
            cache._guarding._happened(asking, Judgement(similarity=0.96, agreed=True))
    await cache._guarding.hand_in()
    other = await make()
    assert other.standing(ask(f"{tenant}-new")).certified
    assert other.standing(ask(f"{tenant}-new")).judged == 650
