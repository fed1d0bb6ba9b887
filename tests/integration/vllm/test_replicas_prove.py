"""Two real vLLM servers behind one target: more is found again, and a fault is only a fault.

Each holds three of the five hot document sets, as a production server holds a part of what is
asked: whoever sends every set to both makes them push out what they need next.
"""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from ragcache.errors import NotCachedError, TargetError
from ragcache.pipeline import Pipeline
from ragcache.targets.vllm import VLLMTarget
from ragcache.testing import Engine, EngineOptions, start_engine, starting_engine
from ragcache.types import Call, Chunk, Completion

from .worlds import ask_all, cached, request, trace

pytestmark = [pytest.mark.vllm, pytest.mark.prove, pytest.mark.timeout(1500)]

#: 1,600 tokens: three sets of about 430 tokens with their questions, not four.
BLOCKS = 51
REQUESTS = 60


@pytest.fixture(scope="module")
def options(smollm: Path) -> EngineOptions:
    return EngineOptions(
        model=smollm, kv_blocks=BLOCKS, max_model_tokens=1024, max_sequences=2, developer_mode=True
    )


@pytest.fixture(scope="module")
def engines(options: EngineOptions) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        starting = [stack.enter_context(starting_engine(options)) for _ in range(2)]
        yield [one.ready() for one in starting]


@pytest.fixture
async def target(engines: list[Engine]) -> AsyncIterator[VLLMTarget]:
    for engine in engines:
        engine.reset_prefix_cache()
    made = VLLMTarget(
        model="smollm2",
        base_urls=[e.base_url for e in engines],
        timeout_s=120,
        watch_s=0.5,
        rest_s=1.0,
    )
    yield made
    await made.close()


class RoundRobin:
    """The same servers and the same layout, each request to the next server."""

    provider = "vllm"

    def __init__(self, target: VLLMTarget) -> None:
        self.name, self.model = target.name, target.model
        self._targets = [replica.target for replica in target.replicas]
        self._turn = 0

    async def complete(self, call: Call) -> Completion:
        self._turn += 1
        return await self._targets[self._turn % len(self._targets)].complete(call)

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        self._turn += 1
        async for chunk in self._targets[self._turn % len(self._targets)].stream(call):
            yield chunk


async def test_where_a_prefix_was_sent_it_is_found_again(engines, target):
    ours = cached(await ask_all(pipeline(target), trace("acme", REQUESTS)))
    used = [engine.counters()["vllm:prompt_tokens_total"] for engine in engines]
    for engine in engines:
        engine.reset_prefix_cache()
    theirs = cached(await ask_all(pipeline(RoundRobin(target)), trace("acme", REQUESTS)))
    print(f"\ncached tokens: by prefix {ours}, round robin {theirs}, {ours / theirs:.2f} times")
    assert ours >= 1.3 * theirs > 0
    assert min(used) > 0  # both served


def pipeline(target) -> Pipeline:
    return Pipeline(target=target, salt_secret=uuid.uuid4().bytes)


async def test_a_server_killed_in_mid_stream_is_an_error_and_a_restart_is_noticed(
    options, make, tenant
):
    """Three lives on one port: killed while it answers, killed while nobody asks, alive."""
    fixed = replace(options, kv_blocks=None)
    with start_engine(fixed) as first:
        fixed = replace(fixed, port=int(first.root_url.rpartition(":")[2]))
        target = VLLMTarget(
            model="smollm2", base_urls=[first.base_url], timeout_s=60, watch_s=0.3, attempts=1
        )
        asking = await make(target=target, salt_secret=b"secret")
        warm = request(tenant, "a", question="Who?").replace(no_cache=False, no_store=False)
        await asking.answer(warm)
        assert believed(asking) > 0
        params = {"max_tokens": 600, "temperature": 0, "ignore_eos": True}
        long = warm.replace(question="What does it all say?", params=params)
        stream = asking.stream(long)
        assert (await anext(stream)).text
        kill(first.pid)
        with pytest.raises(TargetError):
            await exhausted(stream)
        await asking._parts.settled()
        assert believed(asking) == 0
        with pytest.raises(NotCachedError):
            await asking.answer(long.replace(only_if_cached=True))
    with start_engine(fixed) as second:
        answer = await asking.answer(warm.replace(no_cache=True))
        assert answer.usage.cached_tokens == 0
        assert (await asking.answer(warm.replace(no_cache=True))).usage.cached_tokens > 0
        assert believed(asking) > 0
        await target.refresh(target.replicas[0])
        kill(second.pid)
    with start_engine(fixed):
        async with asyncio.timeout(30):  # by the watch alone: nobody asks
            while believed(asking):
                await asyncio.sleep(0.1)
        assert (await asking.answer(warm.replace(no_cache=True))).usage.cached_tokens == 0
    await target.close()


def believed(pipeline: Pipeline) -> int:
    """Return how many prefixes are believed to be in a cache."""
    return sum(len(group.tree) for group in pipeline.forest._groups.values())


async def exhausted(stream: AsyncIterator[Chunk]) -> None:
    async for _ in stream:
        pass


def kill(supervisor: int) -> None:
    """End the engine's processes as a crash does, without a word to anybody."""
    for process in psutil.Process(supervisor).children(recursive=True):
        os.kill(process.pid, signal.SIGKILL)
