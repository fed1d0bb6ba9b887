"""An ordinary LlamaIndex query engine with ragcache in front: one line is new.

Needs a server that speaks the OpenAI API, in OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL; the
cache itself starts what it needs. Run it twice: the second run answers from the cache.
"""

from __future__ import annotations

import asyncio
import os

from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode
from llama_index.llms.openai_like import OpenAILike

import ragcache
from llama_index_ragcache import statuses, wrap

TARIFF = [
    TextNode(text="The demurrage fee is 80 per day.", metadata={"file_path": "fees.md"}),
    TextNode(text="Free time is 4 days in every port.", metadata={"file_path": "free.md"}),
    TextNode(text="Reefer plugs are billed by the hour.", metadata={"file_path": "reefer.md"}),
]
QUESTION = "What is the demurrage fee?"


async def stream(engine) -> str:
    response = await engine.aquery(QUESTION)
    return "".join([token async for token in response.async_response_gen()])


def main() -> None:
    llm = OpenAILike(
        model=os.environ.get("OPENAI_MODEL", "gpt-5-mini"),
        api_base=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
        api_key=os.environ.get("OPENAI_API_KEY", ""),
        is_chat_model=True,
    )
    # Use your own embeddings and your own store: these stand in for them, without a download.
    Settings.embed_model = MockEmbedding(embed_dim=8)
    index = VectorStoreIndex(TARIFF)

    with ragcache.connect() as cache:
        Settings.llm = wrap(llm, cache, tenant="acme")  # the whole change
        engine = index.as_query_engine(similarity_top_k=3)
        for _ in range(2):
            with statuses() as told:
                answer = engine.query(QUESTION)
            print(answer, "|", told[-1]["status"])
        print(asyncio.run(stream(index.as_query_engine(similarity_top_k=3, streaming=True))))


if __name__ == "__main__":
    main()
