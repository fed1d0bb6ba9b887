"""What one process of a deployment judges holds in the other ones: real processes, one Postgres."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.doubles.upstream import Reply

#: Asks what it is told to, verifies every hit, and hears of the others with each lookup.
PROCESS = """
import asyncio, json, sys
from ragcache.lookup import GuardPolicy, LookupPolicy
from ragcache.pipeline import Pipeline, Policies, guarding
from ragcache.store.postgres import PostgresStore
from ragcache.targets.openai import OpenAITarget
from tests.doubles.embedder import TableEmbedder
from tests.fixtures_pipeline import KEYRING, PATIENT
from tests.integration.pipeline.test_guarding import ask

guarding._HEAR_EVERY_S = 0.0

async def main(dsn, base_url, tenant, deployment, shared):
    table = TableEmbedder()
    for port in range(40):
        table.place(f"What is the fee of port {port}?", 1.0, port % 4)
        table.place(f"So what is the fee of port {port}?", 0.995, port % 4)
    target = OpenAITarget(model="fake", base_url=base_url)
    store = PostgresStore(dsn, pool_wait_s=20.0, lookup_timeout_s=20.0)
    guard = GuardPolicy(floor=0.9, uncertified=0.9, enough=3, shared=shared == "shared")
    policies = Policies(
        budgets=PATIENT, lookup=LookupPolicy(uncertified_threshold=0.9), guard=guard
    )
    async with Pipeline(
        target=target, store=store, embedder=table, keyring=KEYRING, policies=policies,
        deployment=deployment, draw=lambda: 0.0,
    ) as cache:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            question, times = json.loads(line)
            for _ in range(times):
                answer = await cache.answer(ask(tenant, question))
                await cache._parts.settled()
            now = cache.standing(ask(tenant, question))
            told = {"hit": answer.status.hit, "reason": answer.status.reason}
            told |= {"judged": now.judged, "off": now.off, "threshold": now.threshold}
            print(json.dumps(told), flush=True)
    await target.close()

asyncio.run(main(*sys.argv[1:]))
"""
RIGHT, WRONG = Reply(text="The fee is 80."), Reply(text="The charge is 90.")
SHARED = pytest.mark.parametrize("shared", [True, False], ids=["shared", "control: each alone"])


class Process:
    """A process of the deployment: it is told what to ask, and tells what became of it."""

    def __init__(self, *words: str) -> None:
        self._running = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, question: str, times: int = 1) -> None:
        self._running.stdin.write(json.dumps([question, times]) + "\n")
        self._running.stdin.flush()

    def told(self) -> dict[str, Any]:
        return json.loads(self._running.stdout.readline())

    def ask(self, question: str, times: int = 1) -> dict[str, Any]:
        self.begin(question, times)
        return self.told()

    def is_ready(self) -> bool:
        return self._running.stdout.readline() == "ready\n"

    def close(self) -> None:
        self._running.stdin.close()
        self._running.wait(60)
        self._running.stdout.close()


@pytest.fixture
def started(postgres, upstream, tenant):
    """Start processes of one deployment, of this test alone."""
    deployment = secrets.token_hex(8)

    @contextmanager
    def start(many: int, *, shared: bool) -> Iterator[list[Process]]:
        words = (postgres.app, upstream.base_url, tenant, deployment)
        running = [Process(*words, "shared" if shared else "alone") for _ in range(many)]
        try:
            assert all(process.is_ready() for process in running)
            yield running
        finally:
            for process in running:
                process.close()

    return start


@SHARED
def test_two_processes_that_judge_at_once_lose_no_judgement(started, upstream, shared):
    upstream.answer(RIGHT)
    with started(2, shared=shared) as (one, other):
        one.ask("What is the fee of port 1?")
        for process in (one, other):
            process.begin("So what is the fee of port 1?", times=8)
        assert [process.told()["hit"] for process in (one, other)] == ["semantic"] * 2
        judged = [
            process.ask("So what is the fee of port 1?")["judged"]
            for process in (one, other, one, other)
        ]
    assert judged[2:] == ([19, 20] if shared else [10, 10])
    with started(1, shared=shared) as (late,):
        assert late.ask("What is the fee of port 1?")["judged"] == (20 if shared else 0)


@SHARED
def test_errors_judged_in_one_process_switch_the_threshold_of_the_other(started, upstream, shared):
    with started(2, shared=shared) as (one, other):
        upstream.answer(RIGHT)
        other.ask("What is the fee of port 0?")
        before = other.ask("So what is the fee of port 0?")
        assert (before["hit"], before["off"]) == ("semantic", False)
        for port in range(1, 40):
            upstream.answer(RIGHT)
            one.ask(f"What is the fee of port {port}?")
            upstream.answer(WRONG)
            if one.ask(f"So what is the fee of port {port}?")["off"]:
                break
        else:
            pytest.fail("no errors switch semantic hits off")
        upstream.answer(RIGHT)
        other.ask("How long is the quay?")  # any lookup hears of the others
        after = other.ask("So what is the fee of port 0?")
    if shared:
        assert (after["hit"], after["reason"], after["off"]) == (None, "guard_off", True)
        assert after["threshold"] == float("inf") > before["threshold"]
    else:
        assert (after["hit"], after["off"]) == ("semantic", False)
        assert after["threshold"] == before["threshold"]
