"""An agent with a retriever tool: documents in front of the question, answers from the cache.

Needs OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL, as in langchain_rag.py, and a model that
calls tools.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from langchain.agents import create_agent
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from langchain_rag import TARIFF

import ragcache
from langchain_ragcache import RagCacheMiddleware


@dataclass
class Context:
    """Filled in by your server from who is logged in, never from what the client sends."""

    tenant_id: str


def main() -> None:
    store = InMemoryVectorStore.from_documents(TARIFF, DeterministicFakeEmbedding(size=64))
    search = create_retriever_tool(
        store.as_retriever(search_kwargs={"k": 3}),
        "search_tariffs",
        "Searches the tariffs.",
        response_format="content_and_artifact",  # the documents themselves come along
    )
    with ragcache.connect() as cache:
        agent = create_agent(
            ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-5-mini")),
            [search],
            system_prompt="Answer from the tariffs only.",
            middleware=[RagCacheMiddleware(cache)],  # the whole change
            context_schema=Context,
        )
        for _ in range(2):
            state = agent.invoke(
                {"messages": [("user", "What is the demurrage fee?")]},
                context=Context(tenant_id="acme"),
            )
            last = state["messages"][-1]
            print(last.content, "|", last.response_metadata["ragcache"]["status"])


if __name__ == "__main__":
    main()
