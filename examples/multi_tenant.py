"""One chain for many tenants: the tenant comes with each call, and answers never cross.

Needs OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL, as in langchain_rag.py.
"""

from __future__ import annotations

import asyncio
import os

from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from langchain_rag import PROMPT, TARIFF, format_docs

import ragcache
from langchain_ragcache import wrap
from ragcache.errors import RequestError


async def main() -> None:
    store = InMemoryVectorStore.from_documents(TARIFF, DeterministicFakeEmbedding(size=64))
    retriever = store.as_retriever(search_kwargs={"k": 3})
    llm = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-5-mini"))
    question = "What is the demurrage fee?"

    with ragcache.connect() as cache:
        chain = {
            "context": retriever | format_docs,
            "question": RunnablePassthrough(),
        } | PROMPT
        shared = chain | wrap(llm, cache)  # no tenant here: each call says whose it is
        for tenant in ("acme", "acme", "beta"):
            answer = await shared.ainvoke(question, {"metadata": {"tenant_id": tenant}})
            print(f"{tenant}:", answer.response_metadata["ragcache"]["status"])

        # Without a tenant the answer cache is off, with one warning; the layout stays on.
        answer = await shared.ainvoke(question)
        print("nobody:", answer.response_metadata["ragcache"]["status"])

        # Two names for one request are a mistake, never a guess.
        bound = chain | wrap(llm, cache, tenant="acme")
        try:
            await bound.ainvoke(question, {"metadata": {"tenant_id": "beta"}})
        except RequestError as error:
            print("refused:", error)


if __name__ == "__main__":
    asyncio.run(main())
