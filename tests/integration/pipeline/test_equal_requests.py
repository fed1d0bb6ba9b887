"""A hundred equal requests are one call: in a process, over processes, and when some leave."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from ragcache.errors import TargetError
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)

#: One of several processes: waits for a line, asks so many times at once, tells what it got.
PROCESS = """
import asyncio, json, sys
from ragcache.pipeline import Pipeline, Policies
from ragcache.store.postgres import PostgresStore
from ragcache.targets.openai import OpenAITarget
from tests.fixtures_pipeline import KEYRING, PATIENT
from tests.integration.pipeline.test_equal_requests import ask

async def main(dsn, base_url, tenant, count):
    target = OpenAITarget(model="fake", base_url=base_url)
    store = PostgresStore(dsn, pool_wait_s=20.0, lookup_timeout_s=20.0)
    policies = Policies(budgets=PATIENT)
    async with Pipeline(target=target, store=store, keyring=KEYRING, policies=policies) as cache:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        answers = await asyncio.gather(*(cache.answer(ask(tenant)) for _ in range(count)))
        print(json.dumps([answer.text for answer in answers]), flush=True)
    await target.close()

asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
"""


def ask(tenant: str, question: str = "What is the demurrage fee?", **fields) -> Request:
    return Request(tenant=tenant, question=question, documents=DOCUMENTS, **fields)


async def started(upstream) -> None:
    while not upstream.bodies:
        await asyncio.sleep(0.002)


async def test_a_hundred_equal_requests_are_one_call_and_a_hundred_answers(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(delay_s=0.2))
    answers = await asyncio.gather(*(cache.answer(ask(tenant)) for _ in range(100)))
    assert len(upstream.bodies) == 1
    assert {a.text for a in answers} == {"The fee is 80."}
    assert len({id(a) for a in answers}) == 100
    assert sum(a.status.collapsed for a in answers) == 99
    assert sum(a.usage.input_tokens or 0 for a in answers) == 100, "a call was paid once"


@pytest.mark.parametrize("streaming", [False, True])
async def test_when_the_leader_leaves_ninety_nine_are_answered(make, upstream, tenant, streaming):
    cache = await make()
    pieces = ["The ", "fee ", "is ", "80."]
    delay_s = 0.2 if streaming else 1.0
    upstream.answer(Reply(delay_s=delay_s, pieces=pieces, piece_delay_s=0.03))

    async def one() -> str:
        if not streaming:
            return (await cache.answer(ask(tenant))).text
        return "".join([chunk.text async for chunk in cache.stream(ask(tenant))])

    tasks = [asyncio.create_task(one()) for _ in range(100)]
    await started(upstream)
    await asyncio.sleep(0.25)  # in the middle of the call, or of the stream
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == ["The fee is 80."] * 99
    assert len(upstream.bodies) == 1


async def test_when_everybody_leaves_the_call_is_cut(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(delay_s=30.0))
    tasks = [asyncio.create_task(cache.answer(ask(tenant))) for _ in range(20)]
    await started(upstream)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(5):
        while len(cache._flight):
            await asyncio.sleep(0.01)


async def test_a_leaders_error_reaches_all_and_the_next_one_tries_again(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(status=400, delay_s=0.1), Reply())
    results = await asyncio.gather(
        *(cache.answer(ask(tenant)) for _ in range(20)), return_exceptions=True
    )
    assert {type(r) for r in results} == {TargetError}
    assert len(upstream.bodies) == 1
    assert (await cache.answer(ask(tenant))).text == "The fee is 80."


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"tenant": "{}"}, {"tenant": "{}-b"}),
        ({"principal": "ann"}, {"principal": "bob"}),
        ({"access": frozenset("a")}, {"access": frozenset("b")}),
    ],
)
async def test_nobody_joins_the_call_of_another_scope(make, upstream, tenant, one, other):
    cache = await make()
    upstream.answer(Reply(delay_s=0.2))
    asked = [
        ask(tenant).replace(
            **{k: v.format(tenant) if isinstance(v, str) else v for k, v in fields.items()}
        )
        for fields in (one, other)
    ]
    answers = await asyncio.gather(*(cache.answer(a) for a in asked for _ in range(5)))
    assert len(upstream.bodies) == 2
    assert sum(a.status.collapsed for a in answers) == 8


@pytest.mark.timeout(300)
def test_three_processes_make_one_call(postgres, upstream, tenant):
    upstream.answer(Reply(delay_s=1.0))
    words = (postgres.app, upstream.base_url, tenant, "20")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        for process in running:
            assert process.stdout.readline() == "ready\n"
        for process in running:
            process.stdin.write("go\n")
            process.stdin.flush()
        texts = [text for p in running for text in json.loads(p.stdout.readline())]
    finally:
        for process in running:
            process.stdin.close()
            process.wait(60)
            process.stdout.close()
    assert texts == ["The fee is 80."] * 60
    assert len(upstream.bodies) == 1
