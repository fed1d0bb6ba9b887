"""A LlamaIndex RAG pipeline over a fake provider, with the cache of the other framework tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from ragcache.portal import Portal
from ragcache.targets.openai import OpenAITarget

from .doubles.anthropic import Messages
from .doubles.upstream import Upstream


@pytest.fixture
def loop_of_synchronous_calls(request: pytest.FixtureRequest) -> Iterator[None]:
    """LlamaIndex's synchronous calls take the thread's event loop, or make one and leave it open."""
    if inspect.iscoroutinefunction(request.function):
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def clients() -> Iterator[dict[str, Any]]:
    """HTTP clients that keep no connection: loops come and go."""
    limits = httpx.Limits(max_keepalive_connections=0)
    with httpx.Client(limits=limits) as client:
        yield {"http_client": client, "async_http_client": httpx.AsyncClient(limits=limits)}


@pytest.fixture
def open_ai(upstream: Upstream, clients: dict[str, Any]) -> Callable[..., Any]:
    """Make LlamaIndex's OpenAI LLM against the fake provider."""
    from llama_index.llms.openai import OpenAI

    def made(**fields: Any) -> Any:
        given = {"model": "gpt-4o-mini", "api_key": "unused", "max_retries": 0, **clients}
        return OpenAI(**(given | {"api_base": upstream.base_url} | fields))

    return made


@pytest.fixture
def open_ai_like(upstream: Upstream, clients: dict[str, Any]) -> Callable[..., Any]:
    """Make LlamaIndex's LLM for OpenAI-compatible servers against the fake provider."""
    from llama_index.llms.openai_like import OpenAILike

    def made(**fields: Any) -> Any:
        given = {
            "model": "fake",
            "api_key": "unused",
            "max_retries": 0,
            "is_chat_model": True,
            "is_function_calling_model": True,
            "context_window": 32_000,
            **clients,
        }
        return OpenAILike(**(given | {"api_base": upstream.base_url} | fields))

    return made


@pytest.fixture
def own_target(upstream: Upstream, portal: Portal) -> Iterator[OpenAITarget]:
    """A target of ragcache's own, which lives on the portal's loop."""
    target = OpenAITarget(model="fake", base_url=upstream.base_url)
    yield target
    portal.run(target.close())


TARIFF = [
    ("fees.md", "The demurrage fee is 80 per day."),
    ("free.md", "Free time is 4 days in every port."),
    ("reefer.md", "Reefer plugs are billed by the hour."),
]


def nodes_of(rows: Sequence[tuple[str, str]]) -> list[NodeWithScore]:
    """Return retrieved nodes, best first."""
    return [
        NodeWithScore(
            node=TextNode(id_=f"{source}#0", text=text, metadata={"file_path": source}),
            score=1.0 - at / 10,
        )
        for at, (source, text) in enumerate(rows)
    ]


class ListRetriever(BaseRetriever):
    """Gives back its nodes, rotated by the number of calls: a retriever whose ranks flap."""

    def __init__(self, rows: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.rows = list(rows)
        self.calls = 0

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        shift = self.calls % max(1, len(self.rows))
        self.calls += 1
        return nodes_of(self.rows[shift:] + self.rows[:shift])


@pytest.fixture
def flapping() -> ListRetriever:
    """A retriever over three nodes."""
    return ListRetriever(TARIFF)


def engine_over(llm: Any, retriever: BaseRetriever, **options: Any) -> RetrieverQueryEngine:
    """The query engine of every tutorial."""
    return RetrieverQueryEngine.from_args(retriever, llm=llm, **options)


@pytest.fixture
def claude_llm(claude_api: Messages) -> Iterator[Callable[..., Any]]:
    """Make LlamaIndex's Anthropic LLM against the strict server, and close its connections."""
    from llama_index.llms.anthropic import Anthropic

    llms: list[Any] = []

    def made(**fields: Any) -> Any:
        given = {"model": "claude-sonnet-4-5", "api_key": "unused", "max_retries": 0}
        llms.append(Anthropic(**(given | {"base_url": claude_api.base_url} | fields)))
        return llms[-1]

    yield made
    for llm in llms:
        llm._client.close()
