"""The chain that a team already has, and the same chain with one line changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable
from langchain_core.vectorstores import InMemoryVectorStore, VectorStoreRetriever

from ..types import ZERO_USAGE, Usage
from .documents import Passage
from .model import Model

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

    from ..embedders import SentenceTransformerEmbedder

#: Passages in a prompt, and the longest answer, in tokens.
PASSAGES = 5
ANSWER_TOKENS = 16
_BATCH = 16
_SYSTEM = (
    "You answer questions about a set of documents, from the context alone and in at most ten "
    "words."
)
_USER = "Context:\n\n{context}\n\nQuestion: {question}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one question brought, as the caller of a chain sees it.

    `ttft_s` runs from the call of the model, after retrieval, to the first piece of text.
    `status` is what ragcache says about it, empty from the plain chain.
    """

    text: str
    usage: Usage
    ttft_s: float | None
    finish_reason: str
    status: dict[str, Any]


class SentenceEmbeddings(Embeddings):
    """ragcache's sentence encoder as LangChain's vector store wants it."""

    def __init__(self, embedder: SentenceTransformerEmbedder) -> None:
        self._embedder = embedder

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector a text."""
        return [embedding.vector.tolist() for embedding in self._embedder.embed_now(texts)]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        return self.embed_documents([text])[0]


def indexed(
    passages: Sequence[Passage], embeddings: Embeddings, *, advance: Callable[[int], None]
) -> VectorStoreRetriever:
    """Return a retriever over the passages; `advance` is told how many were added."""
    store = InMemoryVectorStore(embeddings)
    # Texts of about one length together: a batch is padded to its longest.
    by_length = sorted(passages, key=lambda passage: len(passage.text))
    for batch in _batches(by_length):
        store.add_documents([_document(passage) for passage in batch])
        advance(len(batch))
    return store.as_retriever(search_kwargs={"k": PASSAGES})


def _batches(passages: Sequence[Passage]) -> Iterator[Sequence[Passage]]:
    for at in range(0, len(passages), _BATCH):
        yield passages[at : at + _BATCH]


def _document(passage: Passage) -> Document:
    return Document(page_content=passage.text, metadata={"source": passage.source})


def chat_model(model: Model, **body: Any) -> ChatOpenAI:
    """Return LangChain's client of the model; `body` adds fields to every request."""
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return ChatOpenAI(
        model=model.name,
        base_url=model.base_url,
        api_key=SecretStr(model.api_key),
        temperature=0,
        max_tokens=ANSWER_TOKENS,  # type: ignore[call-arg]  # the alias; pydantic's plugin sees the name
        stream_usage=True,
        max_retries=1,
        timeout=120,
        extra_body={**model.body, **body} or None,
    )


def chain_of(
    retriever: VectorStoreRetriever, llm: Runnable[Any, BaseMessage]
) -> Runnable[Any, Any]:
    """Return the chain of every tutorial: retrieve, format, prompt, model."""
    prompt = ChatPromptTemplate.from_messages(
        [("system", _SYSTEM), MessagesPlaceholder("history"), ("human", _USER)]
    )
    given = {
        "context": itemgetter("question") | retriever | format_docs,
        "question": itemgetter("question"),
        "history": itemgetter("history"),
    }
    return given | prompt | llm


def format_docs(documents: Sequence[Document]) -> str:
    """Return the passages as they stand in the prompt."""
    return "\n\n".join(document.page_content for document in documents)


def turn(question: str, answer: str) -> list[BaseMessage]:
    """Return an earlier question and its answer, as a follow-up's history."""
    return [HumanMessage(question), AIMessage(answer)]


def ask(chain: Runnable[Any, Any], question: str, history: Sequence[BaseMessage] = ()) -> Reply:
    """Ask a chain, streaming, and return what came."""
    stopwatch = _Stopwatch()
    merged: AIMessageChunk | None = None
    asked = {"question": question, "history": list(history)}
    for piece in chain.stream(asked, config={"callbacks": [stopwatch]}):
        merged = piece if merged is None else merged + piece
    if merged is None:
        return Reply(text="", usage=Usage(), ttft_s=None, finish_reason="", status={})
    said = merged.response_metadata
    status = dict(said.get("ragcache") or {})
    return Reply(
        text=str(merged.text).strip(),
        usage=ZERO_USAGE if status.get("hit") else _usage(merged),
        ttft_s=stopwatch.ttft_s,
        finish_reason=str(said.get("finish_reason") or ""),
        status=status,
    )


def _usage(message: AIMessageChunk) -> Usage:
    counted = message.usage_metadata
    if counted is None:
        return Usage()
    details = counted.get("input_token_details") or {}
    return Usage(
        input_tokens=counted["input_tokens"],
        cached_tokens=details.get("cache_read"),
        output_tokens=counted["output_tokens"],
    )


class _Stopwatch(BaseCallbackHandler):
    """Notes when the model is called and when its first text comes."""

    run_inline = True

    def __init__(self) -> None:
        self._called_s = 0.0
        self.ttft_s: float | None = None

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self._called_s = time.perf_counter()

    def on_llm_new_token(self, token: str | list[Any], **_: Any) -> None:
        if token and self.ttft_s is None:
            self.ttft_s = time.perf_counter() - self._called_s
