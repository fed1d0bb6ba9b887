"""Watching LlamaIndex: which nodes reach a synthesizer, and what retrievers find in a run.

Instrumentation attaches late and for the whole process, and swallows errors of its watchers: they
are counted here.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import BoundArguments
from typing import Any

from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMCompletionEndEvent,
    LLMPredictEndEvent,
)
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from llama_index.core.response_synthesizers import BaseSynthesizer
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.dispatcher import active_instrument_tags
from pydantic import PrivateAttr

from ragcache.binding import TENANT_NAMES
from ragcache.retrieved import CONDENSED_CHARS_MAX, condensed_in

from .passages import Contexts, Retrieval, Runs, passage_of, tenant_in

_log = logging.getLogger("ragcache")

#: The tag under which workflows and agents name their run.
RUN_TAG = "llamaindex.run_id"
#: Retrievals remembered outside of any run, in one context.
_MAX_LOOSE = 8

CONTEXTS = Contexts()
RUNS = Runs()

#: Retrievals outside of any run, in the context that made them.
_loose: ContextVar[tuple[Retrieval, ...]] = ContextVar("ragcache_li_loose", default=())
#: So many texts of models are remembered.
_MAX_SAID = 1_000
#: The synthesis under way in this context.
_synthesis: ContextVar[Retrieval | None] = ContextVar("ragcache_li_synthesis", default=None)


@dataclass(slots=True)
class _Failures:
    count: int = 0


FAILURES = _Failures()


class Said:
    """What models of this process said of late: a retriever may be asked just that.

    Not by context: a synchronous call may leave its own behind.
    """

    def __init__(self) -> None:
        self._texts: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, text: str) -> None:
        """Remember a text."""
        with self._lock:
            self._texts[text] = None
            self._texts.move_to_end(text)
            while len(self._texts) > _MAX_SAID:
                self._texts.popitem(last=False)

    def __contains__(self, text: str) -> bool:
        with self._lock:
            return text in self._texts


SAID = Said()


def tags() -> dict[str, Any]:
    """Return the instrument tags of this context."""
    return active_instrument_tags.get()


def around() -> tuple[Retrieval, ...]:
    """Return what was retrieved in this run; outside of one, in this context."""
    run_id = tags().get(RUN_TAG)
    found = RUNS.find(str(run_id)) if run_id else ()
    synthesis = _synthesis.get()
    return (*(found or _loose.get()), *((synthesis,) if synthesis else ()))


def condensed(message: str) -> str | None:
    """Return the question that an engine's own model condensed from a message in conversation.

    Only the newest retrieval counts, and only where the synthesis under way is of what it found:
    an earlier chat in the same context may have retrieved the same documents for another
    question. A query that is the message itself was not condensed.
    """
    synthesis = _synthesis.get()
    run_id = tags().get(RUN_TAG)
    retrievals = (RUNS.find(str(run_id)) if run_id else ()) or _loose.get()
    if synthesis is None or not retrievals or not retrievals[-1].is_condensed:
        return None
    if retrievals[-1].query.strip() == message.strip():
        return None
    found = {passage.document.text for passage in retrievals[-1].passages}
    if not {passage.document.text for passage in synthesis.passages} <= found:
        return None
    return condensed_in([retrievals[-1].query])


class SynthesisWatcher(BaseSpanHandler[BaseSpan]):
    """Notes the final nodes of a synthesis before its model is called."""

    _before: dict[str, Retrieval | None] = PrivateAttr(default_factory=dict)

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows the watcher."""
        return "RagCacheSynthesisWatcher"

    def span_enter(
        self,
        id_: str,
        bound_args: BoundArguments,
        instance: Any | None = None,
        parent_id: str | None = None,  # noqa: ARG002 -- LlamaIndex's signature
        tags: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Note nodes and chunks that reach a synthesizer."""
        if not isinstance(instance, BaseSynthesizer):
            return
        try:
            self._noted(id_, bound_args.arguments, instance, tags or {})
        except Exception:  # noqa: BLE001 -- LlamaIndex would swallow it silently; the call goes on
            FAILURES.count += 1
            _log.warning("nodes of a synthesis could not be noted", exc_info=True)

    def _noted(
        self, id_: str, given: dict[str, Any], synthesizer: BaseSynthesizer, tags: dict[str, Any]
    ) -> None:
        tenant = tenant_of(synthesizer, tags)
        if "nodes" in given:
            retrieval = Retrieval(
                query=_query_of(given.get("query")),
                passages=tuple(passage_of(node) for node in given["nodes"]),
                tenant=tenant,
            )
            self._before[id_] = _synthesis.get()
            _synthesis.set(retrieval)
        elif "text_chunks" in given:
            chunks = [str(chunk) for chunk in given["text_chunks"]]
            around = _synthesis.get() or Retrieval(
                query=str(given.get("query_str") or ""),
                passages=tuple(passage_of(chunk) for chunk in chunks),
                tenant=tenant,
            )
            CONTEXTS.file(around, chunks)

    def span_exit(
        self,
        id_: str,
        bound_args: BoundArguments,  # noqa: ARG002 -- LlamaIndex's signature
        instance: Any | None = None,  # noqa: ARG002 -- LlamaIndex's signature
        result: Any | None = None,  # noqa: ARG002 -- LlamaIndex's signature
        **_: Any,
    ) -> None:
        """Leave a synthesis."""
        self._left(id_)

    def span_drop(
        self,
        id_: str,
        bound_args: BoundArguments,  # noqa: ARG002 -- LlamaIndex's signature
        instance: Any | None = None,  # noqa: ARG002 -- LlamaIndex's signature
        err: BaseException | None = None,  # noqa: ARG002 -- LlamaIndex's signature
        **_: Any,
    ) -> None:
        """Leave a synthesis that failed."""
        self._left(id_)

    def _left(self, id_: str) -> None:
        if id_ in self._before:
            _synthesis.set(self._before.pop(id_))

    def new_span(self, *_: Any, **__: Any) -> None:
        """Keep no spans."""

    def prepare_to_exit_span(self, *_: Any, **__: Any) -> None:
        """Keep no spans."""

    def prepare_to_drop_span(self, *_: Any, **__: Any) -> None:
        """Keep no spans."""


class RetrievalWatcher(BaseEventHandler):
    """Notes what retrievers find, by run where there is one, and who wrote the query."""

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows the watcher."""
        return "RagCacheRetrievalWatcher"

    def handle(self, event: BaseEvent, **_: Any) -> None:
        """Note a retrieval, or what a model said."""
        try:
            if isinstance(event, RetrievalEndEvent):
                self._noted(event)
            elif said := _text_of(event):
                SAID.add(said)
        except Exception:  # noqa: BLE001 -- LlamaIndex would swallow it silently; the call goes on
            FAILURES.count += 1
            _log.warning("a retrieval could not be noted", exc_info=True)

    def _noted(self, event: RetrievalEndEvent) -> None:
        tags = event.tags or {}
        query = _query_of(event.str_or_query_bundle)
        retrieval = Retrieval(
            query=query,
            passages=tuple(passage_of(node) for node in event.nodes),
            tenant=tenant_in(tags, TENANT_NAMES),
            is_condensed=query.strip() in SAID,
        )
        if run_id := tags.get(RUN_TAG):
            RUNS.file(str(run_id), retrieval)
        else:
            _loose.set((*_loose.get(), retrieval)[-_MAX_LOOSE:])


def tenant_of(synthesizer: BaseSynthesizer, tags: dict[str, Any]) -> str | None:
    """Return whose synthesis it is: its model's tenant, else as the tags say."""
    llm: Any = getattr(synthesizer, "_llm", None)
    bound = getattr(getattr(llm, "llm", llm), "bound_tenant", None)
    return bound if isinstance(bound, str) else tenant_in(tags, TENANT_NAMES)


def _text_of(event: BaseEvent) -> str:
    """Return what a model said, where the event tells that and it is no longer than a question."""
    if isinstance(event, LLMPredictEndEvent):
        text = event.output
    elif isinstance(event, LLMCompletionEndEvent):
        text = event.response.text
    elif isinstance(event, LLMChatEndEvent) and event.response is not None:
        text = event.response.message.content or ""
    else:
        return ""
    return text.strip() if len(text.strip()) <= CONDENSED_CHARS_MAX else ""


def _query_of(query: Any) -> str:
    return str(getattr(query, "query_str", query) or "")


_install_lock = threading.Lock()


def install() -> None:
    """Attach the watchers to every dispatcher of this process, once."""
    with _install_lock:
        root = get_dispatcher()
        if not any(isinstance(h, SynthesisWatcher) for h in root.span_handlers):
            root.add_span_handler(SynthesisWatcher())
            root.add_event_handler(RetrievalWatcher())
