"""A batch: exact entries without the target, the rest like next to like, faults kept apart."""

from __future__ import annotations

from ragcache.errors import TargetError
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
    order = order_of(requests, len)
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
