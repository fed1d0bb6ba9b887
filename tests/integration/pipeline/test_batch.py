"""A batch: exact entries without the target, the rest like next to like, faults kept apart."""

from __future__ import annotations

from ragcache.errors import TargetError
from ragcache.layout import LayoutPolicy
from ragcache.pipeline.batch import order_of
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = [
    Document(text=f"The fee of port {n} is {n}0 per day.", source=f"{n}") for n in range(6)
]


def ask(tenant: str, number: int, *documents: int) -> Request:
    return Request(
        tenant=tenant,
        question=f"What is the fee of port {number}?",
        documents=tuple(DOCUMENTS[d] for d in documents),
    )


def test_requests_over_the_same_documents_stand_next_to_each_other():
    requests = [ask("t", n, *sets) for n, sets in enumerate([(0, 1), (2, 3), (1, 0), (3, 2)])]
    ordered = order_of(requests, policy=LayoutPolicy(), count=len)
    order = [number for number, _ in ordered]
    assert sorted(order) == [0, 1, 2, 3]
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}


async def test_exact_entries_come_first_and_without_the_target(make, upstream, tenant, table):
    cache = await make()
    upstream.script = lambda body: Reply(text="It is in the list.")
    requests = [ask(tenant, n, n % 3, 3 + n % 3) for n in range(6)]
    for known in (1, 4):
        await cache.answer(requests[known])
    calls, embedded = len(upstream.bodies), len(table.texts)
    done = [number async for number, _ in cache.abatch(requests, concurrency=2)]
    assert done[:2] == [1, 4]
    assert sorted(done) == list(range(6))
    assert len(upstream.bodies) == calls + 4
    assert len(table.texts) == embedded + 4


async def test_a_failing_request_does_not_take_the_others_with_it(make, upstream, tenant):
    cache = await make()

    def script(body):
        bad = "port 2?" in str(body["messages"])
        return Reply(status=500) if bad else Reply(text="It is in the list.")

    upstream.script = script
    requests = [ask(tenant, n, n) for n in range(4)]
    results = dict([item async for item in cache.abatch(requests)])
    assert isinstance(results[2], TargetError)
    assert [results[n].text for n in (0, 1, 3)] == ["It is in the list."] * 3


async def test_the_blocks_of_a_batch_stand_as_the_schedule_has_them(make, upstream, tenant):
    """The blocks shared most come first, whichever request is sent first."""
    cache = await make(layout={"min_prefix_tokens": 0})
    sets = [(0, 1, 2), (3, 1, 0), (4, 0, 1), (5, 1, 0)]
    requests = [ask(tenant, n, *documents) for n, documents in enumerate(sets)]
    assert len([number async for number, _ in cache.abatch(requests, concurrency=1)]) == 4
    texts = [body["messages"][-1]["content"] for body in upstream.bodies]
    starts = {text.split(DOCUMENTS[n].text)[0] for text in texts for n in (0, 1)}
    first = [min((0, 1), key=lambda n: text.index(DOCUMENTS[n].text)) for text in texts]
    assert len(set(first)) == 1
    assert len(starts) == 2  # nothing stands before the one, only the one before the other


async def test_a_batch_keeps_the_best_blocks_last_where_the_policy_says_so(make, upstream, tenant):
    cache = await make(layout={"min_prefix_tokens": 0, "pin_top": 1})
    requests = [ask(tenant, n, *documents) for n, documents in enumerate([(0, 1, 2), (3, 1, 0)])]
    assert len([number async for number, _ in cache.abatch(requests, concurrency=1)]) == 2
    for body in upstream.bodies:
        text = body["messages"][-1]["content"]
        best = DOCUMENTS[0 if "port 0?" in text else 3].text
        assert all(text.index(best) >= text.index(d.text) for d in DOCUMENTS if d.text in text)
