"""Warm-ups and canaries: what is sent ahead, within which bounds, and what is not cached before."""

from __future__ import annotations

import pytest

from ragcache.errors import ConfigError, TargetError
from ragcache.events import Called
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = [
    Document(text=f"The fee of port {n} is {n}0 per day. " * 8, source=f"{n}") for n in range(6)
]
OLD, NEW = "Answer from the documents.", "Answer from the documents, in one line."


def ask(tenant: str, question: str, *documents: int, **fields) -> Request:
    return Request(
        tenant=tenant,
        question=question,
        system=fields.pop("system", OLD),
        documents=tuple(DOCUMENTS[d] for d in documents),
        **fields,
    )


def like(tenant: str, **fields) -> Request:
    return Request(tenant=tenant, question="", system=NEW, **fields)


async def traffic(cache, tenant: str) -> None:
    for number, documents in enumerate([(0, 1)] * 4 + [(2, 3)] * 2 + [(4, 5)]):
        await cache.answer(ask(tenant, f"How much for ship {number} there?", *documents))


def sent(body) -> tuple[str, str]:
    system, user = (message["content"] for message in body["messages"])
    return system, user


async def test_the_hottest_prefixes_are_sent_under_the_new_text_the_hottest_first(
    make, upstream, tenant, events
):
    cache = await make(layout={"min_prefix_tokens": 0})
    await traffic(cache, tenant)
    before = len(upstream.bodies)
    steps = [step async for step in cache.warm(like(tenant), limit=5)]
    bodies = upstream.bodies[before:]
    assert [(step.done, step.wanted, step.error) for step in steps] == [(1, 2, ""), (2, 2, "")]
    assert all(sent(body)[0] == NEW and body["max_tokens"] == 1 for body in bodies)
    assert DOCUMENTS[0].text.strip() in sent(bodies[0])[1]
    assert DOCUMENTS[2].text.strip() in sent(bodies[1])[1]
    # A warm-up is paid for, and counts as two calls.
    assert sum(isinstance(event, Called) for event in events) == before + 2


async def test_what_was_warmed_is_the_prefix_of_what_is_asked_then(make, upstream, tenant):
    cache = await make(layout={"min_prefix_tokens": 0})
    await traffic(cache, tenant)
    assert len([step async for step in cache.warm(like(tenant))]) == 2
    warmed = sent(upstream.bodies[-2])[1].removesuffix(".")
    asked = await cache.answer(ask(tenant, "How much for ship 9 there?", 1, 0, system=NEW))
    assert sent(upstream.bodies[-1])[1].startswith(warmed)
    assert asked.reuse.predicted_tokens > 100


async def test_a_warm_up_stays_within_its_bounds(make, upstream, tenant):
    cache = await make(layout={"min_prefix_tokens": 0})
    await traffic(cache, tenant)
    assert len([step async for step in cache.warm(like(tenant), limit=1)]) == 1
    assert [step async for step in cache.warm(like(tenant), max_tokens=50)] == []
    assert [step async for step in cache.warm(like("nobody else"))] == []


async def test_a_target_that_fails_ends_the_warm_up(make, upstream, tenant):
    cache = await make(layout={"min_prefix_tokens": 0})
    for number in range(10):
        await cache.answer(ask(tenant, f"How much for ship {number} there?", number % 5))
    upstream.script = lambda body: Reply(status=400)
    steps = []

    async def warm() -> None:
        async for step in cache.warm(like(tenant)):
            steps.append(bool(step.error))  # noqa: PERF401 -- what came before the error counts

    with pytest.raises(TargetError, match="ends after 3 failures"):
        await warm()
    assert steps == [True] * 3


async def test_a_canary_is_answered_without_cache_until_it_is_warm(make, upstream, tenant):
    cache = await make(layout={"min_prefix_tokens": 0})
    await traffic(cache, tenant)
    upstream.answer(Reply(text="It is in the list."))
    asked = ask(tenant, "What is the fee of port 0?", 0, system=NEW, version="2")
    reasons = []
    async for step in cache.warm(like(tenant, version="2"), canary=True):
        answer = await cache.answer(asked)
        reasons.append((step.done, answer.status.reason, answer.status.stored))
    # The last step is yielded when all is sent.
    assert reasons[0] == (1, "canary", False)
    assert reasons[1][1] != "canary"
    stored = await cache.answer(asked.replace(question="What is the fee of port 0 now?"))
    assert stored.status.stored
    again = await cache.answer(asked.replace(question="What is the fee of port 0 now?"))
    assert again.status.hit == "exact"


async def test_other_versions_and_tenants_are_served_as_ever_meanwhile(make, upstream, tenant):
    cache = await make(layout={"min_prefix_tokens": 0})
    await traffic(cache, tenant)
    upstream.answer(Reply(text="It is in the list."))
    old = ask(tenant, "What does the list say of port 0?", 0, 1)
    await cache.answer(old)
    async for step in cache.warm(like(tenant, version="2"), canary=True):
        if step.done == 1:
            assert (await cache.answer(old)).status.hit == "exact"
            other = ask(f"{tenant}-b", "What is the fee of port 1?", 1, version="2")
            assert (await cache.answer(other)).status.reason != "canary"


async def test_a_canary_that_is_given_up_leaves_nothing_cold(make, tenant):
    cache = await make(layout={"min_prefix_tokens": 0})
    await traffic(cache, tenant)
    warming = cache.warm(like(tenant, version="2"), canary=True)
    await anext(warming)
    await warming.aclose()
    answer = await cache.answer(ask(tenant, "What is the fee of port 0?", 0, version="2"))
    assert answer.status.reason != "canary"


async def test_a_canary_needs_a_version(make, tenant):
    cache = await make()
    with pytest.raises(ConfigError, match="version"):
        await anext(cache.warm(like(tenant), canary=True))


async def test_what_is_hot_is_known_to_another_process_by_the_store(make, upstream, tenant):
    one = await make(layout={"min_prefix_tokens": 0})
    for number in range(50):
        await one.answer(ask(tenant, f"How much for ship {number} there?", number % 2))
    await one._parts.settled()
    other = await make(layout={"min_prefix_tokens": 0})
    steps = [step async for step in other.warm(like(tenant), limit=9)]
    assert len(steps) == 2
    assert sent(upstream.bodies[-1])[0] == NEW
    assert [step async for step in other.warm(like(f"{tenant}-b"))] == []
