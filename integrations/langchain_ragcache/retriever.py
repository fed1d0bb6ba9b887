"""A retriever that is spared where the answer to its query is stored already.

It cannot know what the model behind it will be asked, so it learns that: a wrapped model tells it
of each request made with its documents. The next question is looked up as such a request, before
anything is retrieved; on a hit the documents that the stored answer came from are given back, from
memory. The chain goes on as ever, and the model finds the same answer. Should it find none after
all, it has real and current documents in its prompt.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field, PrivateAttr

from ragcache.binding import Identity, controls
from ragcache.errors import ConfigError
from ragcache.keys import content_hash
from ragcache.pipeline import Pipeline
from ragcache.portal import AnyCache, Bridge, Doors, submit
from ragcache.protocols import Named
from ragcache.types import Content, Fingerprint, Formatted, Hit, JsonObject, Message, Miss, Request

from .identity import resolve
from .run_tree import RUNS, install

#: Tenants whose way of asking is remembered, and documents of all of them together.
_MAX_TENANTS = 1024
_MAX_DOCUMENTS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Which model was asked."""

    provider: str
    name: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """How a model was asked with the documents of a retriever."""

    request: Request
    model: Model

    def about(self, question: str, **fields: Any) -> Request:
        """Return the same request with another question, and nothing retrieved."""
        formatted = self.request.formatted
        assert formatted is not None  # noqa: S101 -- no other is learned
        return self.request.replace(
            question=question,
            documents=(),
            formatted=_reworded(formatted, self.request.question, question),
            **fields,
        )


class RagCacheRetriever(BaseRetriever):
    """Any retriever, which is not asked where the answer is stored already.

        access = {"staff"}
        retriever = RagCacheRetriever(inner=store.as_retriever(), cache=cache, access=access,
                                      tenant="acme")
        llm = wrap(llm, cache, access=access, tenant="acme")

    Retrieval is where a corpus usually keeps rights, and a newer document would be found; both are
    skipped on a hit. So the asker's tags are required, and must be those of the wrapped model; and
    `documents.changed(...)` must tell of changes. Use one for each chain: it learns from the
    chain's model, in this process, how questions are asked. Where turns of a conversation come
    before the question, everything is retrieved as ever.

    Args:
        inner: Who is asked on a miss.
        cache: The cache of the wrapped model.
        access: Tags that the asker holds, the same as `wrap(..., access=...)`.
        tenant: Whose requests these are; else each call says it, as with `wrap`.
        principal: Who asks inside the tenant.

    Raises:
        ConfigError: No tag is given, or the cache is none.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseRetriever = Field(description="Who is asked on a miss.")
    access: frozenset[str] = Field(description="Tags that the asker holds.")

    _doors: Doors = PrivateAttr()
    _identity: Identity = PrivateAttr()
    _memory: _Memory = PrivateAttr()

    def __init__(
        self,
        *,
        inner: BaseRetriever,
        cache: AnyCache,
        access: Collection[str],
        tenant: str | None = None,
        principal: str | None = None,
        **fields: Any,
    ) -> None:
        if not access or isinstance(access, str):
            raise ConfigError(
                f"access={access!r}: retrieval is where rights are looked at, and it is skipped "
                "on a hit; pass the tags that the asker holds, here and to wrap()"
            )
        super().__init__(**{"inner": inner, "access": frozenset(access), **fields})
        self._doors = Doors(cache)
        self._identity = Identity(tenant=tenant, principal=principal)
        self._memory = _Memory()
        install()

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        asked, way = self._asked(query, run_manager), self._doors.from_thread()
        if asked is not None and way is not None:
            found = way.run(way.cache.foresee(asked.request, model=asked.model))
            if documents := self._known(asked, found):
                return documents
        documents = self.inner.invoke(query, _below(run_manager))
        return self._kept(documents, run_manager)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        asked, way = self._asked(query, run_manager), self._doors.from_loop()
        if asked is not None and way is not None:
            found = await _foreseen(way, asked)
            if documents := self._known(asked, found):
                return documents
        documents = await self.inner.ainvoke(query, _below(run_manager))
        return self._kept(documents, run_manager)

    # --- one retrieval -------------------------------------------------------------------------

    def _asked(self, query: str, run_manager: Any) -> Lesson | None:
        """Return what the model will be asked, where that is known and a cached answer wanted."""
        RUNS.listen(run_manager.run_id, self._learn)
        who, wanted = self._who(run_manager), controls((run_manager.metadata or {}).get("ragcache"))
        lesson = self._memory.lesson(who.tenant)
        if lesson is None or wanted.get("no_cache") or wanted.get("refresh"):
            return None
        request = lesson.about(query.strip(), principal=who.principal, **wanted)
        return replace(lesson, request=request)

    def _who(self, run_manager: Any) -> Identity:
        return resolve(
            self._identity, metadata=run_manager.metadata, tags=tuple(run_manager.tags or ())
        )

    def _learn(self, request: Request, model: Named) -> None:
        if request.access == self.access and _is_plain(request):
            known = Model(provider=model.provider, name=model.name, model=model.model)
            self._memory.learn(Lesson(request=request, model=known))

    def _known(self, asked: Lesson, found: Hit | Miss) -> list[Document]:
        """Return the documents that the stored answer came from, if all are remembered."""
        if not isinstance(found, Hit):
            return []
        lineage = sorted(found.entry.lineage, key=lambda part: part.rank)
        return self._memory.documents(asked.request.tenant, [part.content for part in lineage])

    def _kept(self, documents: list[Document], run_manager: Any) -> list[Document]:
        if tenant := self._who(run_manager).tenant:
            self._memory.keep(tenant, documents)
        return documents


class _Memory:
    """How each tenant's questions were asked last, and what was retrieved for them."""

    def __init__(self) -> None:
        self._lessons: OrderedDict[str, Lesson] = OrderedDict()
        self._documents: OrderedDict[tuple[str, Fingerprint], Document] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, lesson: Lesson) -> None:
        with self._lock:
            _put(self._lessons, {lesson.request.tenant: lesson}, _MAX_TENANTS)

    def lesson(self, tenant: str | None) -> Lesson | None:
        with self._lock:
            return self._lessons.get(tenant) if tenant else None

    def keep(self, tenant: str, documents: Iterable[Document]) -> None:
        copies = {(tenant, content_hash(d.page_content)): _copy(d) for d in documents}
        with self._lock:
            _put(self._documents, copies, _MAX_DOCUMENTS)

    def documents(self, tenant: str, contents: Sequence[Fingerprint]) -> list[Document]:
        """Return the documents of these contents; none where one is not remembered."""
        with self._lock:
            found = [self._documents.get((tenant, content)) for content in contents]
        known = [_copy(document) for document in found if document is not None]
        return known if len(known) == len(contents) else []


async def _foreseen(way: Pipeline | Bridge, asked: Lesson) -> Hit | Miss:
    if isinstance(way, Pipeline):
        return await way.foresee(asked.request, model=asked.model)
    look = way.cache.foresee(asked.request, model=asked.model)
    return await asyncio.wrap_future(submit(way.loop, look))


def _put(kept: OrderedDict[Any, Any], new: Mapping[Any, Any], limit: int) -> None:
    for key, value in new.items():
        kept[key] = value
        kept.move_to_end(key)
    while len(kept) > limit:
        kept.popitem(last=False)


def _copy(document: Document) -> Document:
    return document.model_copy(update={"metadata": dict(document.metadata)})


def _below(run_manager: Any) -> RunnableConfig:
    return {"callbacks": run_manager.get_child()}


def _is_plain(request: Request) -> bool:
    """Whether another question can be put in its place: it stands alone, before its documents."""
    formatted = request.formatted
    return (
        formatted is not None
        and bool(formatted.blocks and request.question)
        and not (request.history or request.standalone or request.anonymous)
        and not (request.no_cache or request.refresh)
    )


def _reworded(formatted: Formatted, old: str, new: str) -> Formatted:
    def content(given: Content) -> Content:
        if isinstance(given, str):
            return given.replace(old, new)
        return tuple(_reworded_part(part, old, new) for part in given)

    messages: list[Message] = [replace(m, content=content(m.content)) for m in formatted.messages]
    return replace(
        formatted,
        messages=tuple(messages),
        head=formatted.head.replace(old, new),
        tail=formatted.tail.replace(old, new),
    )


def _reworded_part(part: JsonObject, old: str, new: str) -> JsonObject:
    text = part.get("text")
    return {**part, "text": text.replace(old, new)} if isinstance(text, str) else part
