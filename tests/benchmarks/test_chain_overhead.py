"""What one line costs an existing LangChain chain: 20 documents of 46 kB, a model that costs nothing.

The same chain with and without ragcache, in turn, in one run: documents located, moved and joined
again, keys made, no answer cache and no embedding.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_ragcache import wrap
from ragcache.pipeline import Pipeline
from ragcache.portal import Portal
from tests.fixtures_langchain import ListRetriever, rag_chain

DOCUMENTS = [
    Document(
        page_content=f"Rule {n}. " + "The demurrage fee is charged for each day. " * 53,
        metadata={"source": f"rules/{n}.md", "page": n},
    )
    for n in range(20)
]
WARM, COUNT = 60, 600


class Instant(BaseChatModel):
    """Answers at once."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = AIMessage("80 per day.", response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return self._generate(*args, **kwargs)


def chain(llm: Any) -> Any:
    return rag_chain(llm, ListRetriever(documents=DOCUMENTS))


def report(name: str, times: tuple[list[float], list[float]]) -> float:
    plain, ours = (sorted(kept[WARM:]) for kept in times)
    p50 = (statistics.median(ours) - statistics.median(plain)) * 1e3
    p99 = (ours[int(0.99 * len(ours))] - plain[int(0.99 * len(plain))]) * 1e3
    print(
        f"\n{name}: bare chain {statistics.median(plain) * 1e3:.2f} ms at p50; with ragcache "
        f"{p50:+.2f} ms at p50, {p99:+.2f} ms at p99"
    )
    return p50


@pytest.fixture(scope="module", autouse=True)
def sized() -> None:
    assert 45_000 < sum(len(d.page_content) for d in DOCUMENTS) < 48_000


async def test_an_awaited_chain_on_the_caches_loop() -> None:
    async with Pipeline(salt_secret=b"secret") as cache:
        chains = chain(Instant()), chain(wrap(Instant(), cache, tenant="acme"))
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(WARM + COUNT):
            for each, kept in zip(chains, times, strict=True):
                begun = time.perf_counter()
                await each.ainvoke(f"What is the fee on day {number}?")
                kept.append(time.perf_counter() - begun)
    assert report("ainvoke", times) <= 1.0


def test_a_blocking_chain_through_a_portal() -> None:
    with Portal(lambda: Pipeline(salt_secret=b"secret")) as cache:
        times = in_turn(chain(Instant()), chain(wrap(Instant(), cache, tenant="acme")))
    assert report("invoke", times) <= 1.0


def in_turn(*chains: Any) -> tuple[list[float], list[float]]:
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM + COUNT):
        for each, kept in zip(chains, times, strict=True):
            begun = time.perf_counter()
            each.invoke(f"What is the fee on day {number}?")
            kept.append(time.perf_counter() - begun)
    return times
