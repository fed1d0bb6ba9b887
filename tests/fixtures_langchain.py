"""A LangChain RAG chain over a fake provider and a real store, with a portal or on one loop."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_openai import ChatOpenAI

from ragcache.events import Event, Hooks
from ragcache.layout import LayoutPolicy
from ragcache.lookup import LookupPolicy
from ragcache.pipeline import Pipeline, Policies
from ragcache.portal import Portal
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns

from .doubles.anthropic import Messages, serving_messages
from .doubles.brain import Brain
from .doubles.clock import Clock
from .doubles.embedder import TableEmbedder
from .doubles.upstream import Upstream, serving
from .fixtures_pipeline import KEYRING, PATIENT

PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Answer from the documents only."),
        ("human", "{context}\n\nQuestion: {question}"),
    ]
)

TARIFF = [
    Document(page_content="The demurrage fee is 80 per day.", metadata={"source": "fees.md"}),
    Document(page_content="Free time is 4 days in every port.", metadata={"source": "free.md"}),
    Document(page_content="Reefer plugs are billed by the hour.", metadata={"source": "reefer.md"}),
]


class ListRetriever(BaseRetriever):
    """Gives back its list, rotated by the number of calls: a retriever whose ranks flap."""

    documents: list[Document]
    calls: int = 0

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        shift = self.calls % max(1, len(self.documents))
        self.calls += 1
        return self.documents[shift:] + self.documents[:shift]


def join(documents: list[Document]) -> str:
    """What everybody's `format_docs` does."""
    return "\n\n".join(d.page_content for d in documents)


def rag_chain(llm: Runnable[Any, Any], retriever: BaseRetriever) -> Runnable[str, Any]:
    """The chain of every tutorial."""
    return {"context": retriever | join, "question": RunnablePassthrough()} | PROMPT | llm


_numbers = itertools.count()


class Chats:
    """Makes ChatOpenAI models against one address, and closes their connections."""

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self._made: list[ChatOpenAI] = []

    def __call__(self, **fields: Any) -> ChatOpenAI:
        # langchain-openai shares connections by address and timeout; an own timeout is an own one.
        given = {"model": "fake", "api_key": "unused", "max_retries": 0, "stream_usage": True}
        given["timeout"] = 60.0 + next(_numbers) / 1000
        self._made.append(ChatOpenAI(**({"base_url": self.base_url} | given | fields)))
        return self._made[-1]

    async def close(self) -> None:
        for model in self._made:
            model.root_client.close()
            await model.root_async_client.close()


@pytest.fixture
async def chat(upstream: Upstream) -> AsyncIterator[Chats]:
    """Make a ChatOpenAI against the fake provider."""
    made = Chats(upstream.base_url)
    yield made
    await made.close()


@pytest.fixture
def retriever() -> ListRetriever:
    """A retriever over three documents."""
    return ListRetriever(documents=TARIFF)


class Portals:
    """Makes caches with loops of their own: keyword arguments of `Pipeline`."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._opened: list[Portal] = []

    def __call__(self, **parts: Any) -> Portal:
        self._opened.append(Portal(lambda: Pipeline(**(self._given | parts))))
        return self._opened[-1]

    @staticmethod
    def policies(**budgets: float) -> Policies:
        return Policies(
            layout=LayoutPolicy(),
            lookup=LookupPolicy(uncertified_threshold=0.9),
            budgets=replace(PATIENT, **budgets),
        )

    def close(self) -> None:
        for portal in self._opened:
            portal.close()


@pytest.fixture
def portal_of(
    postgres: Dsns, clock: Clock, table: TableEmbedder, events: list[Event]
) -> Iterator[Portals]:
    """Make a cache with a loop of its own: keyword arguments of `Pipeline`."""
    made = Portals(
        {
            "store": PostgresStore(postgres.app, pool_wait_s=10.0, lookup_timeout_s=10.0),
            "embedder": table,
            "keyring": KEYRING,
            "clock": clock,
            "hooks": Hooks(events.append),
            "salt_secret": b"a secret of the tests",
            "draw": lambda: 1.0,  # no hit is verified unless the test wants it
            "policies": Portals.policies(),
        }
    )
    yield made
    made.close()


@pytest.fixture
def portal(portal_of: Portals) -> Portal:
    """A cache with a loop of its own."""
    return portal_of()


@pytest.fixture
def brain() -> Iterator[Brain]:
    """A provider that calls tools and fills schemas."""
    with serving(Brain()) as running:
        yield running  # type: ignore[misc]  # `serving` gives back what it was given


@pytest.fixture
async def thinking(brain: Brain) -> AsyncIterator[Chats]:
    """Make a ChatOpenAI against the thinking provider."""
    made = Chats(brain.base_url)
    yield made
    await made.close()


@pytest.fixture
def claude_api() -> Iterator[Messages]:
    """A strict Anthropic-style provider."""
    with serving_messages() as running:
        yield running


@pytest.fixture
def claude(claude_api: Messages) -> Callable[..., Any]:
    """Make a ChatAnthropic against the strict provider."""
    from langchain_anthropic import ChatAnthropic

    def made(**fields: Any) -> Any:
        given = {"model": "claude-sonnet-5", "api_key": "unused", "max_retries": 0}
        return ChatAnthropic(base_url=claude_api.base_url, **(given | fields))

    return made
