"""Equal requests of several processes make one call; a holder that dies holds nobody up."""

from __future__ import annotations

import asyncio

from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


def ask(tenant: str, question: str = "What is the demurrage fee?") -> Request:
    return Request(tenant=tenant, question=question, documents=DOCUMENTS)


async def test_equal_requests_of_several_caches_are_one_call(make, upstream, tenant):
    """Each pipeline has connections, locks and flights of its own, as a process would."""
    caches = [await make() for _ in range(3)]
    upstream.answer(Reply(delay_s=0.3))
    answers = await asyncio.gather(*(c.answer(ask(tenant)) for c in caches for _ in range(5)))
    assert len(upstream.bodies) == 1
    assert {a.text for a in answers} == {"The fee is 80."}
    assert sum(not a.status.collapsed and a.status.hit is None for a in answers) == 1


async def test_without_turns_each_cache_calls_for_itself(make, upstream, tenant):
    from dataclasses import replace

    from tests.fixtures_pipeline import PATIENT

    class Alone:
        def __init__(self, store):
            self._store = store

        def __getattr__(self, name):
            return getattr(self._store, name)

        def alone(self, scope, key):
            from contextlib import nullcontext

            return nullcontext(True)

    caches = [await make(budgets=replace(PATIENT)) for _ in range(3)]
    for cache in caches:
        cache._parts.store = Alone(cache.store)
    upstream.answer(Reply(delay_s=0.3))
    await asyncio.gather(*(c.answer(ask(tenant)) for c in caches))
    assert len(upstream.bodies) == 3


async def test_a_holder_that_leaves_lets_the_next_one_call(make, upstream, tenant):
    first, second = await make(), await make()
    upstream.answer(Reply(delay_s=5.0), Reply())
    leading = asyncio.create_task(first.answer(ask(tenant)))
    while not upstream.bodies:
        await asyncio.sleep(0.01)
    waiting = asyncio.create_task(second.answer(ask(tenant)))
    await asyncio.sleep(0.2)
    leading.cancel()
    answer = await waiting
    assert answer.text == "The fee is 80."
    assert len(upstream.bodies) == 2


async def test_A07_one_cold_request_goes_ahead_and_the_others_follow(make, upstream, tenant):
    from dataclasses import replace

    from tests.fixtures_pipeline import PATIENT

    cache = await make(budgets=replace(PATIENT, warm_first_s=5.0))
    started = asyncio.Event()
    seen: list[int] = []

    def script(body):
        seen.append(len(upstream.bodies))
        started.set()
        return Reply(delay_s=0.4 if len(seen) == 1 else 0.0)

    upstream.script = script
    questions = [f"What is the fee in port {name}?" for name in "ABCDEFGH"]
    asking = [asyncio.create_task(cache.answer(ask(tenant, q))) for q in questions]
    await started.wait()
    await asyncio.sleep(0.2)
    assert len(upstream.bodies) == 1
    await asyncio.gather(*asking)
    assert len(upstream.bodies) == 8


async def test_A07_warm_first_is_off_by_default(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(delay_s=0.4))
    questions = [f"What is the fee in port {name}?" for name in "ABCD"]
    asking = [asyncio.create_task(cache.answer(ask(tenant, q))) for q in questions]
    while len(upstream.bodies) < 4:
        await asyncio.sleep(0.02)
    assert not any(task.done() for task in asking)
    await asyncio.gather(*asking)
