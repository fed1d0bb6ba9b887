"""What the middleware costs beside the official client, and what it leaves of its throughput.

The same prompts, streamed, against a server in a process of its own that costs next to nothing:
once through `openai` directly, once through the pipeline without an answer cache. Both in turn,
in one run.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI

from ragcache.pipeline import Pipeline
from ragcache.targets.openai import OpenAITarget
from ragcache.types import Document, Request

SERVER = Path(__file__).parents[1] / "doubles" / "fast_upstream.py"
PIECES = 64
DOCUMENTS = tuple(
    Document(
        text=f"Rule {n}. " + "The demurrage fee is charged for each day. " * 20, source=f"{n}.md"
    )
    for n in range(40)
)
SYSTEM = "Answer from the documents only, and name the one that you used."


@pytest.fixture
def base_url() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(PIECES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdin
    yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    process.stdin.close()
    process.stdout.close()
    process.wait(10)


def request(number: int) -> Request:
    documents = tuple(DOCUMENTS[(number * 7 + at * 3) % len(DOCUMENTS)] for at in range(5))
    return Request(
        tenant="acme",
        system=SYSTEM,
        question=f"What is the fee on day {number}?",
        documents=documents,
        params={"temperature": 0},
    )


Ask = Callable[[int], Awaitable[str]]


def direct(client: AsyncOpenAI) -> Ask:
    """Call the client as a chain without ragcache does."""

    async def ask(number: int) -> str:
        asked = request(number)
        context = "\n\n".join(document.text for document in asked.documents)
        stream = await client.chat.completions.create(
            model="fake",
            messages=[
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"{context}\n\n{asked.question}"},
            ],
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        texts = [c.choices[0].delta.content or "" async for c in stream if c.choices]
        return "".join(texts)

    return ask


def through(pipeline: Pipeline) -> Ask:
    async def ask(number: int) -> str:
        return "".join([chunk.text async for chunk in pipeline.stream(request(number))])

    return ask


async def timed(ask: Ask, number: int) -> float:
    begun = time.perf_counter()
    assert len(await ask(number)) > PIECES
    return time.perf_counter() - begun


async def many(ask: Ask, count: int, concurrency: int) -> float:
    """Requests a second."""
    turns = iter(range(count))

    async def worker() -> None:
        for number in turns:
            await ask(number)

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return count / (time.perf_counter() - begun)


async def test_overhead_of_a_streamed_request(base_url):
    async with AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
        target = OpenAITarget(model="fake", base_url=base_url, provider="vllm")
        async with Pipeline(target=target, salt_secret=b"secret") as pipeline:
            ways = direct(client), through(pipeline)
            times: tuple[list[float], list[float]] = ([], [])
            for number in range(660):
                for way, kept in zip(ways, times, strict=True):
                    kept.append(await timed(way, number))
            plain, ours = (sorted(kept[60:]) for kept in times)  # the first ones warm up
            await target.close()
    p50 = (statistics.median(ours) - statistics.median(plain)) * 1e3
    p99 = (ours[int(0.99 * len(ours))] - plain[int(0.99 * len(plain))]) * 1e3
    print(
        f"\ndirect p50 {statistics.median(plain) * 1e3:.2f} ms, "
        f"p99 {plain[int(0.99 * len(plain))] * 1e3:.2f} ms; "
        f"through ragcache {p50:+.2f} ms at p50, {p99:+.2f} ms at p99"
    )
    assert p50 <= 1.5
    assert p99 <= 3.0


async def test_throughput_at_64_concurrent_requests(base_url):
    async with AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
        target = OpenAITarget(model="fake", base_url=base_url, provider="vllm")
        async with Pipeline(target=target, salt_secret=b"secret") as pipeline:
            ways = direct(client), through(pipeline)
            for way in ways:
                await many(way, 128, 64)
            rates: tuple[list[float], list[float]] = ([], [])
            for _ in range(7):
                for way, kept in zip(ways, rates, strict=True):
                    kept.append(await many(way, 384, 64))
            await target.close()
    plain, ours = (statistics.median(kept) for kept in rates)
    print(f"\ndirect {plain:.0f}/s, through ragcache {ours:.0f}/s: {ours / plain:.1%}")
    assert ours / plain >= 0.90
