"""Candidates that the gates leave open, and who decides about them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ragcache.errors import VerifierError
from ragcache.events import Degraded, Judged
from ragcache.lookup import LookupPolicy
from ragcache.pipeline import Budgets, Policies
from ragcache.types import Candidate, Document, Embedding, Request
from tests.doubles.upstream import Reply

DOCUMENTS = (Document(text="The fee is 80. The charge is 90.", source="tariff.pdf"),)
STORED = "What is the demurrage fee?"
ASKED = "What is the detention fee?"
NEGATED = "What is not the demurrage fee?"
ELSEWHERE = "What is the demurrage fee in Rotterdam?"
PATIENT = Budgets(store_s=10.0, embed_s=10.0, put_s=10.0, verify_s=10.0)


class Says:
    """A verifier with one score for everything."""

    id = "says"

    def __init__(self, *scores: float, delay_s: float = 0.0) -> None:
        self.scores = scores
        self.delay_s = delay_s
        self.asked: list[tuple[str, list[str]]] = []

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def opinions(
        self, asked: str, embedding: Embedding, stored: Sequence[Candidate]
    ) -> Sequence[float]:
        assert embedding.vector.any()
        self.asked.append((asked, [each.entry.question for each in stored]))
        await asyncio.sleep(self.delay_s)
        if not self.scores:
            raise VerifierError("no opinion today")
        return self.scores


def ask(tenant: str, question: str = ASKED, **fields: Any) -> Request:
    return Request(tenant=tenant, question=question, documents=DOCUMENTS, **fields)


def policies(**fields: Any) -> Policies:
    return Policies(lookup=LookupPolicy(), **{"budgets": PATIENT, **fields})


@pytest.fixture
def near(table):
    table.place(STORED, 1.0)
    table.place(ASKED, 0.97)
    table.place(NEGATED, 0.99)
    table.place(ELSEWHERE, 0.98)


async def store(cache, upstream, tenant) -> None:
    upstream.answer(Reply(text="The fee is 80."))
    await cache.answer(ask(tenant, STORED))


async def test_without_a_second_opinion_an_unexplained_word_is_a_miss(make, upstream, tenant, near):
    cache = await make(policies=policies())
    await store(cache, upstream, tenant)
    answer = await cache.answer(ask(tenant))
    assert (answer.status.hit, answer.status.reason) == (None, "words")


@pytest.mark.parametrize("knows", [True, False])
async def test_only_a_verifier_that_has_learned_names_is_asked_about_them(
    make, upstream, tenant, near, knows
):
    verifier = Says(0.95)
    verifier.names_told = knows
    cache = await make(policies=policies(), verifier=verifier)
    await store(cache, upstream, tenant)
    answer = await cache.answer(ask(tenant, ELSEWHERE))
    assert (answer.status.hit, answer.status.reason) == (
        ("semantic", "") if knows else (None, "entity")
    )
    assert len(verifier.asked) == knows
    answer = await cache.answer(ask(tenant, NEGATED))
    assert (answer.status.hit, answer.status.reason) == (None, "negation"), "a gate that stays"


async def test_a_sure_verifier_lets_a_grey_candidate_pass(make, upstream, tenant, near):
    verifier = Says(0.95)
    cache = await make(policies=policies(), verifier=verifier)
    await store(cache, upstream, tenant)
    answer = await cache.answer(ask(tenant))
    assert answer.status.hit == "semantic"
    assert verifier.asked == [(ASKED, [STORED])]


async def test_an_unsure_verifier_is_a_miss_that_names_it(make, upstream, tenant, near):
    cache = await make(policies=policies(), verifier=Says(0.89))
    await store(cache, upstream, tenant)
    answer = await cache.answer(ask(tenant))
    assert (answer.status.hit, answer.status.reason) == (None, "verifier")


async def test_no_verifier_overrules_another_gate_or_is_asked_about_it(
    make, upstream, tenant, near
):
    verifier = Says(1.0)
    cache = await make(policies=policies(judge=True), verifier=verifier)
    await store(cache, upstream, tenant)
    answer = await cache.answer(ask(tenant, NEGATED))
    assert (answer.status.hit, answer.status.reason) == (None, "negation")
    assert verifier.asked == []
    assert len(upstream.bodies) == 2


async def test_below_the_threshold_that_holds_nobody_is_asked(make, upstream, tenant, table, near):
    verifier = Says(1.0)
    table.place(ASKED, 0.85)
    cache = await make(policies=policies(), verifier=verifier)
    await store(cache, upstream, tenant)
    assert (await cache.answer(ask(tenant))).status.hit is None
    assert verifier.asked == []


async def test_a_slow_verifier_is_not_waited_for(make, upstream, tenant, events, near):
    budgets = Budgets(store_s=10.0, embed_s=10.0, put_s=10.0, verify_s=0.02)
    cache = await make(policies=policies(budgets=budgets), verifier=Says(1.0, delay_s=30.0))
    await store(cache, upstream, tenant)
    async with asyncio.timeout(5):
        answer = await cache.answer(ask(tenant))
    assert (answer.status.hit, answer.status.reason) == (None, "words")
    assert [(e.part, e.reason) for e in events if isinstance(e, Degraded)] == [
        ("verify", "timeout")
    ]


@pytest.mark.parametrize("scores", [(), (1.0, 1.0)], ids=["raises", "too many"])
async def test_a_broken_verifier_is_passed_by(make, upstream, tenant, events, near, scores):
    cache = await make(policies=policies(), verifier=Says(*scores))
    await store(cache, upstream, tenant)
    assert (await cache.answer(ask(tenant))).status.reason == "words"
    assert [(e.part, e.reason) for e in events if isinstance(e, Degraded)] == [("verify", "error")]


async def test_the_judge_is_asked_behind_the_answer_and_heard_the_next_time(
    make, upstream, tenant, events, near
):
    cache = await make(policies=policies(judge=True))
    await store(cache, upstream, tenant)
    upstream.answer(Reply(text="The charge is 90."), Reply(text="Yes."))
    first = await cache.answer(ask(tenant, no_store=True))
    assert (first.status.hit, first.text) == (None, "The charge is 90.")
    await cache._parts.settled()
    judge = upstream.bodies[-1]
    assert judge["max_tokens"] == 8
    assert STORED in judge["messages"][1]["content"]
    assert ASKED in judge["messages"][1]["content"]
    (judged,) = [e for e in events if isinstance(e, Judged)]
    assert (judged.by, judged.agreed, judged.usage.input_tokens) == ("judge", True, 100)
    assert cache.standing(ask(tenant)).judged == 0, "a judge's word is no verified hit"
    again = await cache.answer(ask(tenant, no_store=True))
    assert (again.status.hit, again.text) == ("semantic", "The fee is 80.")


@pytest.mark.parametrize("word", ["No.", "Perhaps", "The answer is yes"])
async def test_anything_but_yes_serves_nothing(make, upstream, tenant, near, word):
    cache = await make(policies=policies(judge=True))
    await store(cache, upstream, tenant)
    upstream.answer(Reply(text="The charge is 90."), Reply(text=word))
    await cache.answer(ask(tenant, no_store=True))
    await cache._parts.settled()
    upstream.answer(Reply(text="The charge is 90."))
    again = await cache.answer(ask(tenant, no_store=True))
    assert (again.status.hit, again.text) == (None, "The charge is 90.")


async def test_a_judge_that_fails_gives_no_verdict(make, upstream, tenant, events, near):
    cache = await make(policies=policies(judge=True))
    await store(cache, upstream, tenant)
    upstream.answer(Reply(text="The charge is 90."), Reply(status=400))
    assert (await cache.answer(ask(tenant, no_store=True))).text == "The charge is 90."
    await cache._parts.settled()
    assert [(e.part, e.reason) for e in events if isinstance(e, Degraded)] == [("verify", "judge")]
    assert not [e for e in events if isinstance(e, Judged)]
