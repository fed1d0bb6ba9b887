"""Which documents belong to which model call: LangChain's tree of runs, watched from inside.

Context variables do not reach from a retriever to the model (each step of a chain runs in a
copied context), but every run names its parent. Retrieved documents are filed with all runs above
the retriever; a model call takes those of its nearest ancestor that has any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.tracers.context import register_configure_hook

from ragcache.protocols import Named
from ragcache.retrieved import CONDENSED_CHARS_MAX
from ragcache.types import Request

#: Told of a request that a wrapped model makes, and of the model.
Listener: TypeAlias = Callable[[Request, Named], None]

#: Runs that never ended (an abandoned stream) are forgotten after an hour, or when too many.
_FORGET_AFTER_S = 3600.0
_MAX_RUNS = 20_000
#: Retrievals remembered outside of any chain, in one context.
_MAX_LOOSE = 8
#: Short texts of models remembered for a run.
_MAX_SAID = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """What one retriever call was asked, and what it gave."""

    query: str
    documents: tuple[Any, ...]
    #: A model of the same chain wrote the query: the question condensed from the conversation.
    is_condensed: bool = False
    #: Wants to know what a wrapped model asks with these documents, and which model.
    listener: Listener | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRun:
    """The run of a model call, as its start was announced."""

    run_id: UUID
    parent_run_id: UUID | None
    metadata: dict[str, Any]
    tags: tuple[str, ...]


@dataclass(slots=True)
class _Run:
    parent: UUID | None
    query: str = ""
    is_condensed: bool = False
    said: list[str] = field(default_factory=list)
    retrievals: list[Retrieval] = field(default_factory=list)
    loose: list[Retrieval] | None = None
    listener: Listener | None = None
    #: Calls below it under way: LangChain tells no end of one that is cancelled.
    leaves: set[UUID] = field(default_factory=set)
    began_s: float = field(default_factory=time.monotonic)


class RunTree:
    """The runs under way, with the documents retrieved below each of them."""

    def __init__(self) -> None:
        self._runs: dict[UUID, _Run] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def begin(
        self,
        run_id: UUID,
        parent: UUID | None,
        *,
        query: str = "",
        loose: list[Retrieval] | None = None,
        is_leaf: bool = False,
    ) -> None:
        """Note a run, its parent, and for a retriever what it is asked.

        A leaf, which calls a retriever or a model, is forgotten with its parent at the latest.
        """
        with self._lock:
            if is_leaf and (above := self._parent(parent)) is not None:
                above.leaves.add(run_id)
            self._runs[run_id] = run = _Run(parent=parent, query=query, loose=loose)
            run.is_condensed = bool(query.strip()) and any(
                query.strip() in above.said for above in self._above(parent)
            )
            if len(self._runs) > _MAX_RUNS:
                self._sweep()

    def end(self, run_id: UUID) -> None:
        """Forget a run: its documents are filed with its ancestors already."""
        with self._lock:
            self._forget(run_id)

    def listen(self, run_id: UUID, listener: Listener) -> None:
        """Note who wants to know what is asked with the documents of a retriever run."""
        with self._lock:
            if (run := self._runs.get(run_id)) is not None:
                run.listener = listener

    def said(self, run_id: UUID, text: str) -> None:
        """File what a model run said with every run above it; long texts are no questions."""
        with self._lock:
            run = self._forget(run_id)
            if run is None or not 0 < len(text.strip()) <= CONDENSED_CHARS_MAX:
                return
            for ancestor in self._above(run.parent):
                ancestor.said.append(text.strip())
                del ancestor.said[:-_MAX_SAID]

    def retrieved(self, run_id: UUID, documents: Sequence[Any]) -> None:
        """File the documents of a retriever run with every run above it."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return
            found = Retrieval(
                query=run.query,
                documents=tuple(documents),
                is_condensed=run.is_condensed,
                listener=run.listener,
            )
            if run.loose is not None:
                run.loose.append(found)
                del run.loose[:-_MAX_LOOSE]
            for ancestor in self._above(run.parent):
                ancestor.retrievals.append(found)

    def find(self, parent: UUID | None) -> tuple[Retrieval, ...]:
        """Return what was retrieved below the nearest ancestor that has anything."""
        with self._lock:
            for ancestor in self._above(parent):
                if ancestor.retrievals:
                    return tuple(ancestor.retrievals)
        return ()

    def _parent(self, run_id: UUID | None) -> _Run | None:
        return None if run_id is None else self._runs.get(run_id)

    def _forget(self, run_id: UUID) -> _Run | None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return None
        if (above := self._parent(run.parent)) is not None:
            above.leaves.discard(run_id)
        for leaf in run.leaves:
            self._runs.pop(leaf, None)
        return run

    def _above(self, run_id: UUID | None) -> list[_Run]:
        above = []
        while (run := self._parent(run_id)) is not None:
            above.append(run)
            run_id = run.parent
        return above

    def _sweep(self) -> None:
        limit = time.monotonic() - _FORGET_AFTER_S
        old = [run_id for run_id, run in self._runs.items() if run.began_s < limit]
        for run_id in old or list(self._runs)[: _MAX_RUNS // 10]:
            del self._runs[run_id]


#: One tree for the process: run ids are unique, and a handler may be attached more than once.
RUNS = RunTree()

#: Announced just before `_stream` is entered, which is not told its run.
_model_run: ContextVar[ModelRun | None] = ContextVar("ragcache_model_run", default=None)
#: Retrievals outside of any chain, in the context that made them.
_loose: ContextVar[list[Retrieval] | None] = ContextVar("ragcache_loose", default=None)


def take_model_run() -> ModelRun | None:
    """Return the announced run of the model call that begins here, once."""
    found = _model_run.get()
    if found is not None:
        _model_run.set(None)
    return found


def loose_retrievals() -> tuple[Retrieval, ...]:
    """Return what was retrieved in this context outside of any chain."""
    return tuple(_loose.get() or ())


class RagCacheCallbackHandler(BaseCallbackHandler):
    """Watches runs, so that a model call knows the documents retrieved for it.

    `install()` attaches it everywhere; else pass it in the `callbacks` of a chain's config.
    """

    #: In the caller's task and thread, in order, also under async managers.
    run_inline = True

    def __init__(self, runs: RunTree = RUNS) -> None:
        self._runs = runs

    def on_chain_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 -- LangChain's signature
        inputs: Any,  # noqa: ARG002 -- LangChain's signature
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **_: Any,
    ) -> None:
        """Note a chain run."""
        self._runs.begin(run_id, parent_run_id)

    def on_tool_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 -- LangChain's signature
        input_str: str,  # noqa: ARG002 -- LangChain's signature
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **_: Any,
    ) -> None:
        """Note a tool run."""
        self._runs.begin(run_id, parent_run_id)

    def on_retriever_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 -- LangChain's signature
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **_: Any,
    ) -> None:
        """Note a retriever run and its query."""
        loose = None
        if parent_run_id is None:
            loose = list(_loose.get() or ())
            _loose.set(loose)
        self._runs.begin(run_id, parent_run_id, query=query, loose=loose, is_leaf=True)

    def on_retriever_end(
        self,
        documents: Sequence[Document],
        *,
        run_id: UUID,
        **_: Any,
    ) -> None:
        """File the documents."""
        self._runs.retrieved(run_id, documents)
        self._runs.end(run_id)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 -- LangChain's signature
        messages: list[list[BaseMessage]],  # noqa: ARG002 -- LangChain's signature
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Announce a model run to the model."""
        self._runs.begin(run_id, parent_run_id, is_leaf=True)
        _model_run.set(
            ModelRun(
                run_id=run_id,
                parent_run_id=parent_run_id,
                metadata=dict(metadata or {}),
                tags=tuple(tags or ()),
            )
        )

    def on_llm_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 -- LangChain's signature
        prompts: list[str],  # noqa: ARG002 -- LangChain's signature
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **_: Any,
    ) -> None:
        """Note the run of a text completion model: it may condense a question."""
        self._runs.begin(run_id, parent_run_id, is_leaf=True)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """File what the model said: a retriever may be asked that."""
        first = next((each for several in response.generations for each in several), None)
        self._runs.said(run_id, "" if first is None else first.text)

    def _ended(self, *_: Any, run_id: UUID, **__: Any) -> None:
        self._runs.end(run_id)

    on_chain_end = on_chain_error = _ended
    on_tool_end = on_tool_error = _ended
    on_retriever_error = on_llm_error = _ended


_INSTALLED: list[RagCacheCallbackHandler] = []
_install_lock = threading.Lock()


def install() -> RagCacheCallbackHandler:
    """Attach the handler to every run of this process, once; return it.

    The context variable has the handler as its default, so that it is seen in every thread and
    task without being set there.
    """
    with _install_lock:
        if not _INSTALLED:
            handler = RagCacheCallbackHandler()
            variable: ContextVar[RagCacheCallbackHandler | None] = ContextVar(
                "ragcache_callback_handler", default=handler
            )
            register_configure_hook(variable, inheritable=True)
            _INSTALLED.append(handler)
        return _INSTALLED[0]
