"""Predicted against served on every response, and what is learned from the difference."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ragcache.targets.openai import OpenAITarget
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = tuple(
    Document(text=f"Tariff {n}. " + "Free time is four days. " * 60, source=f"tariff-{n}.pdf")
    for n in range(4)
)


def ask(tenant: str, question: str, **fields) -> Request:
    return Request(tenant=tenant, question=question, documents=DOCUMENTS, no_store=True, **fields)


def caching(*cached: int):
    """Answer in turn with these numbers of cached tokens."""
    return [
        Reply(
            usage={
                "prompt_tokens": 1600,
                "completion_tokens": 5,
                "total_tokens": 1605,
                "prompt_tokens_details": {"cached_tokens": tokens},
            }
        )
        for tokens in cached
    ]


@pytest.fixture
async def openai(make, upstream):
    """A pipeline whose target follows OpenAI's rules: 5 minutes, 1,024 tokens at least."""
    target = OpenAITarget(model="gpt-5.5", base_url=upstream.base_url, provider="openai")
    yield await make(target=target)
    await target.close()


async def test_what_was_sent_is_predicted_and_no_gap_has_a_cause(openai, upstream, tenant):
    upstream.answer(*caching(0, 1536))
    cold = await openai.answer(ask(tenant, "What is the fee of berth A?"))
    warm = await openai.answer(ask(tenant, "What is the fee of berth B?"))
    assert (cold.reuse.predicted_tokens, cold.reuse.served_tokens, cold.reuse.cause) == (0, 0, "")
    assert warm.reuse.predicted_tokens > 1400
    assert (warm.reuse.served_tokens, warm.reuse.cause) == (1536, "")


async def test_what_is_gone_within_its_life_was_evicted(openai, upstream, tenant, clock):
    upstream.answer(*caching(0, 0))
    await openai.answer(ask(tenant, "What is the fee of berth A?"))
    clock.now += timedelta(seconds=30)
    lost = await openai.answer(ask(tenant, "What is the fee of berth B?"))
    assert lost.reuse.predicted_tokens > 1400
    assert lost.reuse.cause == "evicted"


async def test_what_is_past_its_life_is_not_predicted_and_has_expired(
    openai, upstream, tenant, clock
):
    upstream.answer(*caching(0, 0))
    await openai.answer(ask(tenant, "What is the fee of berth A?"))
    clock.now += timedelta(days=2)
    lost = await openai.answer(ask(tenant, "What is the fee of berth B?"))
    assert (lost.reuse.predicted_tokens, lost.reuse.cause) == (0, "expired")


async def test_a_lifetime_is_believed_as_far_as_it_is_served(openai, upstream, tenant, clock):
    """After misses at 200 s of documented 300 s, nothing is predicted at 200 s any more."""
    upstream.answer(*caching(0))
    predictions = []
    for number in range(8):
        answer = await openai.answer(ask(tenant, f"What is the fee of berth {number}?"))
        predictions.append(answer.reuse.predicted_tokens)
        clock.now += timedelta(seconds=200)
    assert predictions[1] > 1400
    assert predictions[-1] == 0


async def test_short_prefixes_say_that_they_are_short(openai, upstream, tenant):
    upstream.answer(*caching(0))
    short = [
        ask(tenant, q).replace(documents=DOCUMENTS[:1])
        for q in ("What is the fee of berth A?", "What is the fee of berth B?")
    ]
    answers = [await openai.answer(request) for request in short]
    assert answers[1].reuse.cause == "under minimum"


async def test_the_other_trust_group_of_a_tenant_shares_no_blocks(make, upstream, tenant):
    cache = await make(salt_secret=b"a secret of this test")
    upstream.answer(*caching(0))
    shared = ask(tenant, "What is the fee of berth A?", sharing="public")
    await cache.answer(shared)
    own = await cache.answer(ask(tenant, "What is the fee of berth B?"))
    assert own.reuse.cause == "salt"
    # Control: without the public request before it, nothing is missing.
    other = await cache.answer(ask(f"{tenant}-other", "What is the fee of berth B?"))
    assert other.reuse.cause in ("", "salt")


async def test_a_target_that_does_not_tell_leaves_the_cause_unknown(openai, upstream, tenant):
    usage = {"prompt_tokens": 1600, "completion_tokens": 5, "total_tokens": 1605}
    upstream.answer(Reply(usage=usage))
    answer = await openai.answer(ask(tenant, "What is the fee of berth A?"))
    assert answer.reuse.served_tokens is None
    assert answer.reuse.cause == "unknown"


async def test_documents_that_changed_are_not_predicted(openai, upstream, tenant):
    upstream.answer(*caching(0))
    await openai.answer(ask(tenant, "What is the fee of berth A?"))
    await openai.documents.changed(tenant, [d.source for d in DOCUMENTS])
    after = await openai.answer(ask(tenant, "What is the fee of berth B?"))
    assert after.reuse.predicted_tokens == 0
    # Control: sent once more, they are.
    again = await openai.answer(ask(tenant, "What is the fee of berth C?"))
    assert again.reuse.predicted_tokens > 1400
