"""Every way in which LlamaIndex calls a model with documents, each as one request of many.

A request has documents of its own, retrieved in an order of its own; its number stands in every
document and in the question, so that a body tells whose it is.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from llama_index.core import get_response_synthesizer
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
)
from llama_index.core.query_engine import (
    RetrieverQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step
from pydantic import BaseModel

from tests.doubles.brain import think
from tests.doubles.upstream import Reply

DOCUMENTS = 4


class Fee(BaseModel):
    """A fee."""

    answer: str


def documents_of(request: int) -> list[str]:
    """The documents of a request, in the one order that all its bodies should have."""
    return [
        f"Berth {letter} of request {request}: the crane at quay {letter}{request} lifts "
        f"{10 + place} tons and costs {20 + place} per hour."
        for place, letter in enumerate("ABCD"[:DOCUMENTS])
    ]


def question_of(request: int) -> str:
    return f"What does a crane cost in request {request}?"


class OwnRetriever(BaseRetriever):
    """Gives the request's documents, each time in another order."""

    def __init__(self, request: int) -> None:
        super().__init__()
        self._request = request
        self._random = random.Random(request)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        texts = documents_of(self._request)
        self._random.shuffle(texts)
        return [
            NodeWithScore(
                node=TextNode(text=text, metadata={"file_path": f"crane-{self._request}.md"}),
                score=1.0 - rank / 10,
            )
            for rank, text in enumerate(texts)
        ]


@dataclass
class World:
    """One LLM for all requests of a row."""

    llm: Any
    functions: Any
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def engine(self, request: int, **options: Any) -> RetrieverQueryEngine:
        return RetrieverQueryEngine.from_args(OwnRetriever(request), llm=self.llm, **options)


Row = Callable[[World, int], Awaitable[Any]]
ROWS: dict[str, Row] = {}
#: Rows of which each call begins all requests itself.
ALL_AT_ONCE: dict[str, Callable[[World, int], Awaitable[Any]]] = {}


def row(name: str) -> Callable[[Row], Row]:
    def named(work: Row) -> Row:
        ROWS[name] = work
        return work

    return named


def at_once(name: str) -> Callable[[Row], Row]:
    def named(work: Row) -> Row:
        ALL_AT_ONCE[name] = work
        return work

    return named


async def drained(response: Any) -> str:
    return "".join([token async for token in response.async_response_gen()])


async def in_thread(work: Callable[..., Any], *args: Any) -> Any:
    """Run in a thread with an empty context, as a server's own pool would."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, work, *args)


# --- query engines -------------------------------------------------------------------------------


@row("compact, awaited")
async def _(world: World, request: int) -> Any:
    return await world.engine(request).aquery(question_of(request))


@row("compact, in threads")
async def _(world: World, request: int) -> Any:
    return await in_thread(world.engine(request).query, question_of(request))


@row("compact, asynchronous stream")
async def _(world: World, request: int) -> Any:
    return await drained(await world.engine(request, streaming=True).aquery(question_of(request)))


@row("compact, synchronous stream in threads")
async def _(world: World, request: int) -> Any:
    def work() -> str:
        response = world.engine(request, streaming=True).query(question_of(request))
        return "".join(response.response_gen)

    return await in_thread(work)


@row("stream begun in one thread, read in another")
async def _(world: World, request: int) -> Any:
    response = await in_thread(world.engine(request, streaming=True).query, question_of(request))
    return await in_thread(lambda: "".join(response.response_gen))


@row("stream begun in one task, read in another")
async def _(world: World, request: int) -> Any:
    engine = world.engine(request, streaming=True)
    response = await asyncio.create_task(engine.aquery(question_of(request)))
    return await asyncio.create_task(drained(response))


@at_once("asynchronous streams interleaved in one task")
async def _(world: World, count: int) -> Any:
    engines = [world.engine(request, streaming=True) for request in range(count)]
    responses = [await e.aquery(question_of(at)) for at, e in enumerate(engines)]
    left = [response.async_response_gen() for response in responses]
    while left:
        left = [stream for stream in left if await anext(stream, None) is not None]


@at_once("synchronous streams interleaved in one thread")
async def _(world: World, count: int) -> Any:
    def work() -> None:
        engines = [world.engine(request, streaming=True) for request in range(count)]
        responses = [e.query(question_of(at)) for at, e in enumerate(engines)]
        left = [response.response_gen for response in responses]
        while left:
            left = [stream for stream in left if next(stream, None) is not None]

    await in_thread(work)


@row("refine")
async def _(world: World, request: int) -> Any:
    return await world.engine(request, response_mode="refine").aquery(question_of(request))


@row("refine, streamed")
async def _(world: World, request: int) -> Any:
    engine = world.engine(request, response_mode="refine", streaming=True)
    return await drained(await engine.aquery(question_of(request)))


@row("tree_summarize")
async def _(world: World, request: int) -> Any:
    engine = world.engine(request, response_mode="tree_summarize")
    return await engine.aquery(question_of(request))


@row("accumulate")
async def _(world: World, request: int) -> Any:
    engine = world.engine(request, response_mode="accumulate")
    return await engine.aquery(question_of(request))


@row("compact_accumulate")
async def _(world: World, request: int) -> Any:
    engine = world.engine(request, response_mode="compact_accumulate")
    return await engine.aquery(question_of(request))


@row("structured answer")
async def _(world: World, request: int) -> Any:
    return await world.engine(request, output_cls=Fee).aquery(question_of(request))


@row("structured LLM")
async def _(world: World, request: int) -> Any:
    llm = world.llm.as_structured_llm(Fee)
    engine = RetrieverQueryEngine.from_args(OwnRetriever(request), llm=llm)
    return await engine.aquery(question_of(request))


# --- chat engines --------------------------------------------------------------------------------

EARLIER = [
    ChatMessage(role=MessageRole.USER, content="Hello."),
    ChatMessage(role=MessageRole.ASSISTANT, content="Good day."),
]


@row("context chat")
async def _(world: World, request: int) -> Any:
    engine = ContextChatEngine.from_defaults(
        OwnRetriever(request), llm=world.llm, system_prompt="Answer briefly."
    )
    return await engine.achat(question_of(request))


@row("condense_plus_context chat, streamed")
async def _(world: World, request: int) -> Any:
    engine = CondensePlusContextChatEngine.from_defaults(
        OwnRetriever(request), llm=world.llm, system_prompt="Answer briefly."
    )
    response = await engine.astream_chat(question_of(request), chat_history=list(EARLIER))
    return "".join([token async for token in response.async_response_gen()])


@row("condense_question chat")
async def _(world: World, request: int) -> Any:
    engine = CondenseQuestionChatEngine.from_defaults(world.engine(request), llm=world.llm)
    return await engine.achat(question_of(request), chat_history=list(EARLIER))


# --- agents --------------------------------------------------------------------------------------


def retriever_tool(request: int) -> RetrieverTool:
    return RetrieverTool.from_defaults(
        OwnRetriever(request), name="search", description="Searches the tariff."
    )


@row("FunctionAgent with a retriever tool, streamed")
async def _(world: World, request: int) -> Any:
    agent = FunctionAgent(tools=[retriever_tool(request)], llm=world.functions)
    return await agent.run(question_of(request))


@row("FunctionAgent with a retriever tool")
async def _(world: World, request: int) -> Any:
    agent = FunctionAgent(tools=[retriever_tool(request)], llm=world.functions, streaming=False)
    return await agent.run(question_of(request))


@row("FunctionAgent with a query engine tool")
async def _(world: World, request: int) -> Any:
    tool = QueryEngineTool.from_defaults(
        world.engine(request), name="tariff", description="Knows the tariff."
    )
    return await FunctionAgent(tools=[tool], llm=world.functions).run(question_of(request))


@row("ReActAgent with a retriever tool")
async def _(world: World, request: int) -> Any:
    agent = ReActAgent(tools=[retriever_tool(request)], llm=world.llm)
    return await agent.run(question_of(request))


# --- workflows -----------------------------------------------------------------------------------


class Found(Event):
    """Nodes on their way to the next step."""

    nodes: list[NodeWithScore]


class SynthesisFlow(Workflow):
    """Retrieves in one step, synthesizes in the next."""

    def __init__(self, world: World, request: int) -> None:
        super().__init__(timeout=60)
        self._world, self._request = world, request

    @step
    async def retrieve(self, event: StartEvent) -> Found:
        return Found(nodes=await OwnRetriever(self._request).aretrieve(question_of(self._request)))

    @step
    async def synthesize(self, event: Found) -> StopEvent:
        synthesizer = get_response_synthesizer(llm=self._world.llm)
        response = await synthesizer.asynthesize(question_of(self._request), nodes=event.nodes)
        return StopEvent(result=str(response))


class HandMadeFlow(SynthesisFlow):
    """The same with a prompt of its own."""

    @step
    async def synthesize(self, event: Found) -> StopEvent:
        context = "\n---\n".join(n.node.get_content() for n in event.nodes)
        text = f"Context:\n{context}\n\nQuestion: {question_of(self._request)}"
        response = await self._world.llm.achat([ChatMessage(content=text)])
        return StopEvent(result=str(response))


@row("workflow with a synthesizer")
async def _(world: World, request: int) -> Any:
    return await SynthesisFlow(world, request).run()


@row("workflow with a prompt made by hand")
async def _(world: World, request: int) -> Any:
    return await HandMadeFlow(world, request).run()


# --- engines of engines --------------------------------------------------------------------------


@row("sub-questions")
async def _(world: World, request: int) -> Any:
    tool = QueryEngineTool.from_defaults(
        world.engine(request), name="tariff", description="Knows the tariff."
    )
    engine = SubQuestionQueryEngine.from_defaults(
        query_engine_tools=[tool],
        llm=world.llm,
        question_gen=LLMQuestionGenerator.from_defaults(llm=world.llm),
        response_synthesizer=get_response_synthesizer(llm=world.llm),
        verbose=False,
    )
    return await engine.aquery(question_of(request))


@row("router")
async def _(world: World, request: int) -> Any:
    tools = [
        QueryEngineTool.from_defaults(world.engine(request), name=name, description=name)
        for name in ("tariff", "weather")
    ]
    engine = RouterQueryEngine.from_defaults(
        query_engine_tools=tools,
        llm=world.llm,
        selector=LLMSingleSelector.from_defaults(llm=world.llm),
    )
    return await engine.aquery(question_of(request))


@row("simple_summarize")
async def _(world: World, request: int) -> Any:
    engine = world.engine(request, response_mode="simple_summarize")
    return await engine.aquery(question_of(request))


# --- what the model says -------------------------------------------------------------------------


def answer(body: dict[str, Any]) -> Reply:
    """Answer as a capable model would, in the protocol that the prompt asks for."""
    text = "\n".join(str(m.get("content") or "") for m in body["messages"])
    if "Thought:" in text:
        return Reply(text=_react(body, text))
    if "relevant sub-questions" in text:
        asked = re.findall(r"request (\d+)", text)
        item = {"sub_question": question_of(int(asked[-1])), "tool_name": "tariff"}
        return Reply(text="```json\n" + json.dumps({"items": [item]}) + "\n```")
    if "return the choice" in text.replace("\n", " "):
        return Reply(text=json.dumps([{"choice": 1, "reason": "it fits"}]))
    if "standalone question" in text.lower():
        asked = re.findall(r"request (\d+)", text)
        return Reply(text=question_of(int(asked[-1])) if asked else "What?")
    return think(body)


def _react(body: dict[str, Any], text: str) -> str:
    observed = any(str(m.get("content") or "").startswith("Observation:") for m in body["messages"])
    if observed:
        return "Thought: I can answer without using any more tools.\nAnswer: It costs 20."
    asked = re.findall(r"request (\d+)", text)
    given = json.dumps({"input": question_of(int(asked[-1]))})
    return f"Thought: I need to use a tool.\nAction: search\nAction Input: {given}"


# --- what a body says ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """Whose documents stand in a body, and in which order."""

    requests: frozenset[int]
    asked: frozenset[int]
    order: tuple[int, ...]


_DOCUMENT = re.compile(r"Berth ([A-D]) of request (\d+): the crane")
_QUESTION = re.compile(r"crane cost in request (\d+)\?")


def read(body: dict[str, Any]) -> Read:
    text = "\n".join(_text(m) for m in body["messages"])
    found = _DOCUMENT.findall(text)
    return Read(
        requests=frozenset(int(number) for _, number in found),
        asked=frozenset(int(number) for number in _QUESTION.findall(text)),
        order=tuple("ABCD".index(letter) for letter, _ in found),
    )


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)
