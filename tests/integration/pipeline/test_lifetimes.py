"""How long answers live: jittered, never extended, shortly where they are of the moment."""

from __future__ import annotations

import asyncio
import itertools

from ragcache.settings import Settings
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


def ask(tenant: str, question: str = "What is the demurrage fee?", **fields) -> Request:
    return Request(tenant=tenant, question=question, documents=DOCUMENTS, **fields)


async def test_lifetimes_that_nobody_asked_for_differ_and_never_exceed_what_is_set(
    make, upstream, tenant
):
    draws = itertools.cycle([0.0, 0.25, 0.5, 0.999])
    cache = await make(admission={"ttl_s": 1000.0}, draw=lambda: next(draws))
    lives = []
    for n in range(4):
        answer = await cache.answer(ask(tenant, f"What is the fee of port {n}?"))
        lives.append(round(answer.status.ttl_s))
    assert lives == [900, 925, 950, 1000]
    answer = await cache.answer(ask(tenant, "What is asked for?", ttl_s=60.0))
    assert answer.status.ttl_s == 60.0


async def test_questions_of_the_moment_live_shortly_by_a_rule_of_the_settings(
    make, upstream, tenant, tmp_path, clock
):
    file = tmp_path / "ragcache.toml"
    file.write_text("[admission]\ntime_bound_ttl_s = 0\n[admission.time_bound_words]\nberth = 20\n")
    cache = await make(admission=Settings.load(file).admission)
    answer = await cache.answer(ask(tenant, "What is the demurrage fee today?"))
    assert (answer.status.stored, answer.status.store_reason) == (False, "ttl")
    answer = await cache.answer(ask(tenant, "What is the fee of a berth?"))
    assert answer.status.ttl_s == 20
    clock.advance(21)
    assert (await cache.answer(ask(tenant, "What is the fee of a berth?"))).status.hit is None


async def test_a_thousand_readers_over_an_expiry_make_one_refresh(make, upstream, tenant, clock):
    cache = await make()
    upstream.answer(Reply(delay_s=0.2))
    await cache.answer(ask(tenant, ttl_s=60.0))
    clock.advance(59.6)
    for _ in range(10):
        wave = [cache.answer(ask(tenant, ttl_s=60.0)) for _ in range(100)]
        answers = await asyncio.gather(*wave)
        assert {a.text for a in answers} == {"The fee is 80."}
        clock.advance(0.1)
    assert len(upstream.bodies) == 2


async def test_a_request_may_ask_for_a_younger_answer_or_a_new_one(make, upstream, tenant, clock):
    cache = await make()
    await cache.answer(ask(tenant))
    clock.advance(100)
    assert (await cache.answer(ask(tenant, max_age_s=200))).status.hit == "exact"
    assert (await cache.answer(ask(tenant, max_age_s=50, no_store=True))).status.hit is None
    assert (await cache.answer(ask(tenant, no_cache=True, no_store=True))).status.hit is None
    calls = len(upstream.bodies)
    renewed = await cache.answer(ask(tenant, refresh=True))
    assert (renewed.status.hit, renewed.status.stored) == (None, True)
    assert len(upstream.bodies) == calls + 1
    assert (await cache.answer(ask(tenant, max_age_s=50))).status.hit == "exact"


async def test_answers_of_another_revision_or_policy_stop_being_served_at_once(
    make, upstream, tenant
):
    from ragcache.pipeline import Policies
    from tests.fixtures_pipeline import PATIENT

    async def cache_of(**fields):
        return await make(policies=Policies(budgets=PATIENT, **fields), embedder=None)

    old = await cache_of(revision="2031-01", version="1")
    assert (await old.answer(ask(tenant))).status.stored
    assert await old.answers(tenant=tenant).put(ask(tenant).question, "80.", documents=DOCUMENTS)
    for fields in ({"revision": "2031-02", "version": "1"}, {"revision": "2031-01"}):
        cache = await cache_of(**fields)
        assert (await cache.answer(ask(tenant, no_store=True))).status.hit is None
        assert not await cache.answers(tenant=tenant).get(ask(tenant).question, documents=DOCUMENTS)
    again = await cache_of(revision="2031-01", version="1")
    assert (await again.answer(ask(tenant))).status.hit == "exact"
