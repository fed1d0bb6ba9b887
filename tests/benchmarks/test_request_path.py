"""What a request waits for in the cache itself: an exact hit, a miss, and many misses at once.

The embedded Postgres, a target that costs nothing. The prompt is of about 1,000 tokens. Beside the
time on the wall stands the processor's: that of this process, which is the cache's own work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.documents import Document as LangChainDocument
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_ragcache import wrap
from ragcache.pipeline import Pipeline
from ragcache.types import Chunk, Completion, Document, Request, Usage
from tests.doubles.embedder import TableEmbedder
from tests.fixtures_langchain import ListRetriever, rag_chain

from .test_chain_overhead import Instant

TEXTS = [f"Rule {n}. " + "The demurrage fee is charged for each day. " * 18 for n in range(5)]
DOCUMENTS = tuple(Document(text=text, source=f"{n}.md") for n, text in enumerate(TEXTS))
ANSWER = "The demurrage fee is charged for each day."
COUNT = 400


class AtOnce:
    """A target that answers at once, whole or in 16 pieces."""

    provider = "vllm"
    name = "at-once"
    model = "m"

    async def complete(self, call):
        usage = Usage(input_tokens=1000, cached_tokens=512, output_tokens=10)
        return Completion(text=ANSWER, finish_reason="stop", usage=usage, model=self.model)

    async def stream(self, call):
        for _ in range(15):
            await asyncio.sleep(0)
            yield Chunk(text="a ")
        yield Chunk(text="day.", completion=await self.complete(call))


class Answering(Instant):
    """A chat model whose answer rests on the documents."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage(ANSWER, response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=message)])


def asked(tenant: str, question: str) -> Request:
    return Request(tenant=tenant, system="Be brief.", question=question, documents=DOCUMENTS)


def told(name: str, wall: list[float], cpu_s: float) -> float:
    """Print and return the median in milliseconds."""
    wall = sorted(wall)
    p50, p99 = (1e3 * wall[int(share * len(wall))] for share in (0.5, 0.99))
    print(f"\n{name}: {p50:.2f} ms at p50, {p99:.2f} ms at p99, {1e3 * cpu_s:.2f} ms of processor")
    return p50


async def timed(ask: Callable[[int], Awaitable[None]], count: int) -> tuple[list[float], float]:
    wall = []
    for number in range(40):
        await ask(-1 - number)
    cpu_s = time.process_time()
    for number in range(count):
        begun = time.perf_counter()
        await ask(number)
        wall.append(time.perf_counter() - begun)
    return wall, (time.process_time() - cpu_s) / count


async def test_an_exact_hit_takes_single_digit_milliseconds(make, table, tenant):
    cache: Pipeline = await make(target=AtOnce())
    for number in range(20):
        assert (await cache.answer(asked(tenant, f"What is fee {number}?"))).status.stored
    embedded = embeddings(table)

    async def ask(number: int) -> None:
        answer = await cache.answer(asked(tenant, f"What is fee {number % 20}?"))
        assert answer.status.hit == "exact"

    assert told("exact hit", *await timed(ask, COUNT)) < 10
    assert embeddings(table) == embedded


async def test_an_exact_hit_through_a_chain_takes_single_digit_milliseconds(make, table, tenant):
    cache: Pipeline = await make(target=AtOnce())
    documents = [
        LangChainDocument(page_content=text, metadata={"source": f"{n}.md"})
        for n, text in enumerate(TEXTS)
    ]
    retriever = ListRetriever(documents=documents)
    bare = rag_chain(Answering(), retriever)
    ours = rag_chain(wrap(Answering(), cache, tenant=tenant), retriever)
    for number in range(20):
        await ours.ainvoke(f"What is fee {number}?")
    embedded = embeddings(table)

    async def ask(number: int) -> None:
        await ours.ainvoke(f"What is fee {number % 20}?")

    async def ask_bare(number: int) -> None:
        await bare.ainvoke(f"What is fee {number % 20}?")

    plain = told("the chain alone, its model for nothing", *await timed(ask_bare, COUNT))
    hit = told("exact hit through the chain", *await timed(ask, COUNT))
    assert hit - plain < 10
    assert embeddings(table) == embedded


async def test_a_miss_with_all_its_stages(make, tenant):
    cache: Pipeline = await make(target=AtOnce())

    async def ask(number: int) -> None:
        answer = await cache.answer(asked(tenant, f"What is fee {number} of pier {number % 7}?"))
        assert answer.status.reason

    told("miss, embedded by a table, admitted and stored", *await timed(ask, COUNT))


async def test_a_miss_without_a_store():
    async with Pipeline(target=AtOnce(), salt_secret=b"secret") as cache:

        async def ask(number: int) -> None:
            await cache.answer(asked("acme", f"What is fee {number}?"))

        told("laid out only", *await timed(ask, 4 * COUNT))


async def test_two_hundred_streams_at_once(make, tenant):
    cache: Pipeline = await make(target=AtOnce())
    for name, used in (("with a store", cache), ("without", Pipeline(target=AtOnce()))):
        turns = iter(range(1_200))
        wall: list[float] = []

        async def worker(turns=turns, used=used, wall=wall) -> None:
            for number in turns:
                begun = time.perf_counter()
                request = asked(tenant, f"What is fee {number} of berth {number % 11}?")
                async for _ in used.stream(request):
                    pass
                wall.append(time.perf_counter() - begun)

        cpu_s, begun = time.process_time(), time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(200)))
        rate = len(wall) / (time.perf_counter() - begun)
        told(f"200 streams, {name}", wall, (time.process_time() - cpu_s) / len(wall))
        print(f"{rate:.0f} requests a second")


def embeddings(table: TableEmbedder) -> int:
    return len(table.texts)
