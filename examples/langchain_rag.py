"""An ordinary LangChain RAG chain with ragcache in front: one line is new.

Needs a server that speaks the OpenAI API, in OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL; the
cache itself starts what it needs. Run it twice: the second run answers from the cache.
"""

from __future__ import annotations

import os

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

import ragcache
from langchain_ragcache import wrap

TARIFF = [
    Document(page_content="The demurrage fee is 80 per day.", metadata={"source": "fees.md"}),
    Document(page_content="Free time is 4 days in every port.", metadata={"source": "free.md"}),
    Document(page_content="Reefer plugs are billed by the hour.", metadata={"source": "reefer.md"}),
]
PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Answer from the documents only."),
        ("human", "{context}\n\nQuestion: {question}"),
    ]
)


def format_docs(documents: list[Document]) -> str:
    return "\n\n".join(document.page_content for document in documents)


def main() -> None:
    # Use your own embeddings and your own store: these stand in for them, without a download.
    store = InMemoryVectorStore.from_documents(TARIFF, DeterministicFakeEmbedding(size=64))
    retriever = store.as_retriever(search_kwargs={"k": 3})
    llm = ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-5-mini"))

    with ragcache.connect() as cache:
        llm = wrap(llm, cache, tenant="acme")  # the whole change
        chain = (
            {"context": retriever | format_docs, "question": RunnablePassthrough()} | PROMPT | llm
        )
        for _ in range(2):
            answer = chain.invoke("What is the demurrage fee?")
            print(answer.content, "|", answer.response_metadata["ragcache"]["status"])
        for chunk in chain.stream("What is the demurrage fee?"):
            print(chunk.content, end="", flush=True)
        print()


if __name__ == "__main__":
    main()
