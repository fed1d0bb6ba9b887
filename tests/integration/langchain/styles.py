"""Nineteen ways in which people run a chain, each for many concurrent requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypedDict

from langchain.agents import create_agent
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langgraph.graph import END, START, StateGraph

from tests.fixtures_langchain import PROMPT, join

GROUPS = 5
PER_GROUP = 4
_TOPICS = ["tolls", "cranes", "pilots", "locks", "berths"]


def group_of(number: int) -> int:
    return number % GROUPS


def question(number: int) -> str:
    return f"Request {number}: what about the {_TOPICS[group_of(number)]}?"


def documents(group: int) -> list[Document]:
    return [
        Document(
            page_content=f"Group {group} says thing {k} about {_TOPICS[group]}, at length.",
            metadata={"source": f"{_TOPICS[group]}-{k}.md"},
        )
        for k in range(PER_GROUP)
    ]


def retrieved(query: str) -> list[Document]:
    """The documents of the request's group, in an order of the request's own."""
    number = int(query.split()[1].rstrip(":"))
    found = documents(group_of(number))
    shift = number // GROUPS % PER_GROUP
    return found[shift:] + found[:shift]


class SyncRetriever(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return retrieved(query)


class AsyncRetriever(SyncRetriever):
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        await asyncio.sleep(0.001 * (hash(query) % 5))
        return retrieved(query)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A wrapped model, its bare self, and a retriever that awaits and one that does not."""

    llm: Runnable[Any, Any]
    retriever: BaseRetriever = field(default_factory=AsyncRetriever)
    sync_retriever: BaseRetriever = field(default_factory=SyncRetriever)

    def chain(self, retriever: BaseRetriever | None = None) -> Runnable[str, Any]:
        context = (retriever or self.retriever) | join
        return {"context": context, "question": RunnablePassthrough()} | PROMPT | self.llm


Style = Callable[[Parts, Sequence[str]], Awaitable[Any]]


async def _each(one: Callable[[str], Awaitable[Any]], asked: Sequence[str]) -> None:
    await asyncio.gather(*(one(q) for q in asked))


async def ainvoke(parts: Parts, asked: Sequence[str]) -> None:
    await _each(parts.chain().ainvoke, asked)


async def ainvoke_sync_retriever(parts: Parts, asked: Sequence[str]) -> None:
    await _each(parts.chain(parts.sync_retriever).ainvoke, asked)


async def astream(parts: Parts, asked: Sequence[str]) -> None:
    async def one(q: str) -> None:
        async for _ in parts.chain().astream(q):
            pass

    await _each(one, asked)


async def astream_events(parts: Parts, asked: Sequence[str]) -> None:
    async def one(q: str) -> None:
        async for _ in parts.chain().astream_events(q, version="v2"):
            pass

    await _each(one, asked)


async def abatch(parts: Parts, asked: Sequence[str]) -> None:
    await parts.chain().abatch(list(asked))


async def batch(parts: Parts, asked: Sequence[str]) -> None:
    chain = parts.chain(parts.sync_retriever)
    await asyncio.to_thread(chain.batch, list(asked), {"max_concurrency": 32})


async def threads(parts: Parts, asked: Sequence[str]) -> None:
    chain = parts.chain(parts.sync_retriever)

    def run() -> None:
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(chain.invoke, asked))

    await asyncio.to_thread(run)


async def lambda_async(parts: Parts, asked: Sequence[str]) -> None:
    async def fetch(q: str) -> dict[str, str]:
        return {"context": join(await parts.retriever.ainvoke(q)), "question": q}

    await _each((RunnableLambda(fetch) | PROMPT | parts.llm).ainvoke, asked)


async def lambda_sync(parts: Parts, asked: Sequence[str]) -> None:
    def fetch(q: str) -> dict[str, str]:
        return {"context": join(parts.sync_retriever.invoke(q)), "question": q}

    await _each((RunnableLambda(fetch) | PROMPT | parts.llm).ainvoke, asked)


_STUFF = ChatPromptTemplate.from_messages([("human", "{context}\n\nQuestion: {input}")])


async def retrieval_chain(parts: Parts, asked: Sequence[str]) -> None:
    chain = create_retrieval_chain(parts.retriever, create_stuff_documents_chain(parts.llm, _STUFF))
    await _each(lambda q: chain.ainvoke({"input": q}), asked)


async def stuffed_with_sources(parts: Parts, asked: Sequence[str]) -> None:
    stuff = create_stuff_documents_chain(
        parts.llm,
        _STUFF,
        document_prompt=PromptTemplate.from_template("Source: {source}\n{page_content}"),
        document_separator="\n---\n",
    )
    chain = create_retrieval_chain(parts.retriever, stuff)
    await _each(lambda q: chain.ainvoke({"input": q}), asked)


class State(TypedDict, total=False):
    question: str
    context: str
    answer: str


def _graph(retrieve: Any, answer: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("retrieve", retrieve)
    graph.add_node("answer", answer)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "answer")
    graph.add_edge("answer", END)
    return graph.compile()


async def graph_async(parts: Parts, asked: Sequence[str]) -> None:
    async def retrieve(state: State) -> State:
        return {"context": join(await parts.retriever.ainvoke(state["question"]))}

    async def answer(state: State) -> State:
        return {"answer": (await (PROMPT | parts.llm).ainvoke(state)).content}

    graph = _graph(retrieve, answer)
    await _each(lambda q: graph.ainvoke({"question": q}), asked)


async def graph_sync(parts: Parts, asked: Sequence[str]) -> None:
    def retrieve(state: State) -> State:
        return {"context": join(parts.sync_retriever.invoke(state["question"]))}

    def answer(state: State) -> State:
        return {"answer": (PROMPT | parts.llm).invoke(state).content}

    graph = _graph(retrieve, answer)
    await _each(lambda q: graph.ainvoke({"question": q}), asked)


async def agent(parts: Parts, asked: Sequence[str]) -> None:
    tool = create_retriever_tool(parts.retriever, "search", "Searches.")
    made = create_agent(parts.llm, [tool])
    await _each(lambda q: made.ainvoke({"messages": [HumanMessage(q)]}), asked)


async def plain_python(parts: Parts, asked: Sequence[str]) -> None:
    async def one(q: str) -> None:
        found = await parts.retriever.ainvoke(q)
        await parts.llm.ainvoke(PROMPT.invoke({"context": join(found), "question": q}))

    await _each(lambda q: asyncio.create_task(one(q)), asked)


async def one_root_of_chains(parts: Parts, asked: Sequence[str]) -> None:
    chain = parts.chain()

    async def root(questions: list[str]) -> None:
        await _each(chain.ainvoke, questions)

    await _four_roots(root, asked)


async def one_root_of_bare_calls(parts: Parts, asked: Sequence[str]) -> None:
    async def root(questions: list[str]) -> None:
        async def one(q: str) -> None:
            found = await parts.retriever.ainvoke(q)
            await parts.llm.ainvoke(PROMPT.invoke({"context": join(found), "question": q}))

        await _each(one, questions)

    await _four_roots(root, asked)


async def _four_roots(root: Any, asked: Sequence[str]) -> None:
    step = max(1, len(asked) // 4)
    parts = [list(asked[at : at + step]) for at in range(0, len(asked), step)]
    await asyncio.gather(*(RunnableLambda(root).ainvoke(questions) for questions in parts))


async def abandoned_streams(parts: Parts, asked: Sequence[str]) -> None:
    async def one(q: str) -> None:
        async with contextlib.aclosing(parts.chain().astream(q)) as pieces:
            async for _ in pieces:
                break

    await _each(one, asked)


async def cancelled_calls(parts: Parts, asked: Sequence[str]) -> None:
    """Each call is cancelled while the model answers, then asked again."""

    async def one(q: str) -> None:
        task = asyncio.create_task(parts.chain().ainvoke(q))
        await asyncio.sleep(0.05)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await parts.chain().ainvoke(q)

    await _each(one, asked)


STYLES: dict[str, Style] = {
    style.__name__: style
    for style in (
        ainvoke,
        ainvoke_sync_retriever,
        astream,
        astream_events,
        abatch,
        batch,
        threads,
        lambda_async,
        lambda_sync,
        retrieval_chain,
        stuffed_with_sources,
        graph_async,
        graph_sync,
        agent,
        plain_python,
        one_root_of_chains,
        one_root_of_bare_calls,
        abandoned_streams,
        cancelled_calls,
    )
}
#: Bare calls side by side under one run see each other's documents; the literal text decides.
SEES_OTHERS = {"one_root_of_bare_calls"}
#: The tool's reply stands behind the question, and only the middleware moves it.
QUESTION_FIRST = {"agent"}
