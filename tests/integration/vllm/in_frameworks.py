"""Both frameworks over an engine in this process: run by path, prints what it saw as JSON.

Usage: python in_frameworks.py MODEL
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from in_process import ARGUMENTS, ENVIRONMENT
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnablePassthrough
from llama_index.core import get_response_synthesizer
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import NodeWithScore, TextNode

from langchain_ragcache import RagCacheChatModel
from llama_index_ragcache import RagCacheLLM
from ragcache.events import Answered, Event, Hooks
from ragcache.pipeline import Pipeline
from ragcache.targets.vllm_engine import VLLMEngineTarget

TENANTS = ("acme/eu@prod", "acme/eu@prod", "acme/eu@stage")
TEXTS = ["\n".join(f"{part} {n}: the quay holds {n} reels." for n in range(12)) for part in "pqr"]
QUESTION = "How many reels does quay p hold?"
PROMPT = ChatPromptTemplate.from_messages(
    [("system", "Answer from the documents only."), ("human", "{context}\n\nQuestion: {question}")]
)
SCHEMA = {
    "type": "object",
    "properties": {"reels": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["reels"],
}
TOOL = {"type": "function", "function": {"name": "count", "parameters": SCHEMA}}
CHOICE = {"type": "function", "function": {"name": "count"}}


class Flapping(BaseRetriever):
    """Its ranks change with each call."""

    calls: int = 0

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        self.calls += 1
        texts = TEXTS[self.calls % 3 :] + TEXTS[: self.calls % 3]
        return [Document(page_content=text) for text in texts]


def chain(llm: RagCacheChatModel, retriever: BaseRetriever) -> Runnable[str, Any]:
    def join(documents: list[Document]) -> str:
        return "\n\n".join(document.page_content for document in documents)

    return {"context": retriever | join, "question": RunnablePassthrough()} | PROMPT | llm


async def frameworks(target: VLLMEngineTarget) -> dict[str, Any]:
    events: list[Event] = []
    async with Pipeline(salt_secret=b"secret of the script", hooks=Hooks(events.append)) as cache:
        seen = {"langchain": await langchain(cache, target)}
        seen["llama_index"] = await llama_index(cache, target)
        seen["langchain"] |= await langchain_doors(cache, target)
    answers = [event.answer for event in events if isinstance(event, Answered)]
    for at, name in enumerate(("langchain", "llama_index")):
        seen[name]["cached"] = [
            answer.usage.cached_tokens for answer in answers[at * len(TENANTS) :][: len(TENANTS)]
        ]
    return seen


async def langchain(cache: Pipeline, target: VLLMEngineTarget) -> dict[str, Any]:
    retriever, given = Flapping(), {"max_tokens": 8, "temperature": 0}
    told = []
    for tenant in TENANTS:
        llm = RagCacheChatModel(cache=cache, target=target, tenant=tenant, params=given)
        told.append(await chain(llm, retriever).ainvoke(QUESTION))
    return {
        "read": [m.usage_metadata["input_token_details"]["cache_read"] for m in told],
        "tokens": [m.usage_metadata["input_tokens"] for m in told],
        "model": told[0].response_metadata["model_name"],
    }


async def langchain_doors(cache: Pipeline, target: VLLMEngineTarget) -> dict[str, Any]:
    given = {"max_tokens": 64, "temperature": 0}
    llm = RagCacheChatModel(cache=cache, target=target, tenant="acme", params=given)
    asked = chain(llm, Flapping())
    pieces = [piece.content async for piece in asked.astream(QUESTION)]
    called = await llm.bind_tools([TOOL], tool_choice=CHOICE).ainvoke("Count the reels.")
    return {
        "whole": (await asked.ainvoke(QUESTION)).content,
        "thread": (await asyncio.to_thread(asked.invoke, QUESTION)).content,
        "pieces": [piece for piece in pieces if piece],
        # Whether the arguments are whole within so few tokens is the model's affair.
        "called": [call["name"] for call in (*called.tool_calls, *called.invalid_tool_calls)],
    }


async def llama_index(cache: Pipeline, target: VLLMEngineTarget) -> dict[str, Any]:
    nodes = [NodeWithScore(node=TextNode(text=text), score=1.0) for text in TEXTS]
    texts = []
    for at, tenant in enumerate(TENANTS):
        llm = RagCacheLLM(cache=cache, target=target, tenant=tenant, max_tokens=8, temperature=0)
        synthesizer = get_response_synthesizer(llm=llm, response_mode="compact")
        texts.append(str(await synthesizer.asynthesize(QUESTION, nodes[at:] + nodes[:at])))
    llm = RagCacheLLM(cache=cache, target=target, tenant="acme", max_tokens=8, temperature=0)
    message = [ChatMessage(content="What is the capital of France?")]
    stream = await llm.astream_chat(message)
    pieces = [piece.delta async for piece in stream]
    whole = await asyncio.to_thread(llm.chat, message)
    return {"texts": texts, "pieces": pieces, "whole": whole.message.content}


async def main(model: str) -> None:
    target = VLLMEngineTarget(model=model, engine_args=ARGUMENTS, environment=ENVIRONMENT)
    try:
        print("SEEN" + json.dumps(await frameworks(target)))
    finally:
        await target.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
