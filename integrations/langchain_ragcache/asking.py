"""From one call of a chat model to a request of the cache."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document as LangChainDocument
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage, ToolMessage
from pydantic import BaseModel

from ragcache.binding import Identity, Options, controls
from ragcache.keys import canonical_json
from ragcache.layout.located import Seen, beside_blocks, locate
from ragcache.plain import plain
from ragcache.retrieved import condensed_in, told
from ragcache.types import Document, Formatted, Request

from .identity import resolve
from .messages import last_human, message_of, turns
from .run_tree import RUNS, Listener, ModelRun, Retrieval, loose_retrievals

#: Settings of a model object that shape no answer, and its live parts.
_NOT_SHAPING = re.compile(
    r"client|callback|^cache$|^verbose$|^tags$|^metadata$|^name$|^profile$|rate_limiter"
    r"|timeout|retries|^streaming$|^disable_streaming$|stream_usage|token_ids|headers"
    r"|secret|password|credential|(^|_)(api_)?key$|authorization|auth_token|access_token"
)
#: Of the call itself.
_CALL_ONLY = frozenset({"run_manager", "ragcache"})
#: Names under which a document's metadata may keep where it comes from.
_SOURCES = ("source", "url", "file_path", "path", "file_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of the cache, and what else its answer needs."""

    request: Request
    formatted: Formatted
    #: Nobody said whose request it is.
    is_anonymous: bool = False
    #: The class that structured output is read as.
    schema: type[BaseModel] | None = None
    #: Retrievers that want to know of requests like this one.
    listeners: tuple[Listener, ...] = ()


def ask(
    model: BaseChatModel,
    messages: Sequence[BaseMessage],
    *,
    options: Options,
    run: ModelRun | None,
    stop: Sequence[str] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    context: Any = None,
) -> Asked:
    """Return the request that a call of a chat model makes.

    Raises:
        RequestError: Two places name different tenants, or a control is unknown.
    """
    kwargs = kwargs or {}
    metadata = run.metadata if run else {}
    who = resolve(
        options.identity, metadata=metadata, tags=run.tags if run else (), context=context
    )
    retrievals = tuple(_retrievals(run, messages))
    formatted, documents = locate([message_of(m) for m in messages], _visible(retrievals))
    params = params_of(model, stop, kwargs)
    asked = controls(metadata.get("ragcache"), kwargs.get("ragcache"))
    history = tuple([message_of(m) for m in turns(messages)])
    standing = {"standalone": _condensed(retrievals)} if history else {}
    request = Request(
        tenant=who.tenant or f"anonymous-{secrets.token_hex(16)}",
        anonymous=who.tenant is None,
        principal=who.principal,
        question=_question(messages, formatted, retrievals),
        documents=tuple([document_of(seen) for seen in documents]),
        history=history,
        formatted=formatted,
        params=params,
        **{**standing, **options.request, **asked, **switched_off(who, params)},
    )
    form = kwargs.get("response_format")
    return Asked(
        request=request,
        formatted=formatted,
        is_anonymous=who.tenant is None,
        listeners=_listeners(retrievals, request.question),
        schema=form if isinstance(form, type) and issubclass(form, BaseModel) else None,
    )


def _listeners(retrievals: Sequence[Retrieval], question: str) -> tuple[Listener, ...]:
    """Return the retrievers whose query is the very question."""
    return tuple(r.listener for r in retrievals if r.listener and r.query.strip() == question)


def switched_off(who: Identity, params: Mapping[str, Any]) -> dict[str, bool]:
    """Turn the answer cache off where it would be unsafe, or could not give all that is asked."""
    asks_more = (params.get("n") or 1) != 1 or bool(params.get("logprobs"))
    if who.tenant is None or asks_more:
        return {"no_cache": True, "no_store": True}
    return {}


# --- documents ---------------------------------------------------------------------------------


def _retrievals(run: ModelRun | None, messages: Sequence[BaseMessage]) -> Iterator[Retrieval]:
    """Yield what may stand in this prompt: told by hand, retrieved in this run, or in artifacts."""
    for block in told():
        yield Retrieval(query=block.query, documents=block.documents)
    found = RUNS.find(run.parent_run_id) if run else ()
    yield from found or loose_retrievals()
    for message in messages:
        if isinstance(message, ToolMessage) and isinstance(message.artifact, Sequence):
            yield Retrieval(query="", documents=tuple(message.artifact))


def _visible(retrievals: Sequence[Retrieval]) -> tuple[Seen, ...]:
    """Return the documents, each as often as one retrieval gave it: retrievers may be nested."""
    by_text: dict[str, list[Seen]] = {}
    for retrieval in retrievals:
        here: dict[str, list[Seen]] = {}
        for document in retrieval.documents:
            seen = seen_of(document)
            if seen is not None:
                here.setdefault(seen.text, []).append(seen)
        for text, found in here.items():
            if len(found) > len(by_text.get(text, ())):
                by_text[text] = found
    return tuple([seen for found in by_text.values() for seen in found])


def seen_of(document: Any) -> Seen | None:
    """Return a document of any make (after a checkpoint they are dicts); None if it is none."""
    if isinstance(document, LangChainDocument):
        return Seen(text=document.page_content, metadata=document.metadata, origin=document)
    if isinstance(document, str):
        return Seen(text=document, metadata={}, origin=document)
    if isinstance(document, Document):
        return Seen(
            text=document.text,
            metadata={"source": document.source, **document.metadata},
            origin=document,
        )
    text = _field(document, "page_content")
    if not isinstance(text, str):
        return None
    return Seen(text=text, metadata=_field(document, "metadata") or {}, origin=document)


def _field(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, Mapping) else getattr(document, name, None)


def document_of(seen: Seen) -> Document:
    """Return a document as ragcache reads it."""
    origin = seen.origin
    if isinstance(origin, Document):
        return origin
    metadata = seen.metadata
    found = origin.id if isinstance(origin, LangChainDocument) else _field(origin, "id")
    access = metadata.get("access")
    return Document(
        text=seen.text,
        source=_source_in(metadata),
        id=str(found) if found else None,
        metadata={str(k): v for k, v in metadata.items()},
        access=frozenset(map(str, access)) if isinstance(access, _TAGS) else _NONE,
    )


def _source_in(metadata: Mapping[str, Any]) -> str:
    for name in _SOURCES:
        if value := metadata.get(name):
            return str(value)
    return ""


_NONE: frozenset[str] = frozenset()
_TAGS = (list, tuple, set)


def locate_in(messages: Sequence[BaseMessage]) -> tuple[Formatted, tuple[Document, ...]]:
    """Return a prompt with the documents located that its tool messages or the caller name."""
    found = _visible(tuple(_retrievals(None, messages)))
    formatted, documents = locate([message_of(m) for m in messages], found)
    return formatted, tuple(document_of(seen) for seen in documents)


# --- the question ------------------------------------------------------------------------------


def _question(
    messages: Sequence[BaseMessage], formatted: Formatted, retrievals: Sequence[Retrieval]
) -> str:
    """Return what is asked: the retriever's query where the prompt repeats it, else the newest
    human message, without the documents in it.
    """
    at = last_human(messages)
    text = "" if at is None else beside_blocks(formatted, at)
    for retrieval in reversed(retrievals):
        query = retrieval.query.strip()
        if query and query in text:
            return query
    return text.strip()


def _condensed(retrievals: Sequence[Retrieval]) -> str | None:
    """Return the question as the chain's own model condensed it from the conversation."""
    return condensed_in(r.query for r in retrievals if r.is_condensed)


def question_in(messages: Sequence[BaseMessage]) -> str:
    """Return the newest human message's text."""
    at = last_human(messages)
    return "" if at is None else message_of(messages[at]).text().strip()


# --- parameters --------------------------------------------------------------------------------


def params_of(
    model: BaseChatModel, stop: Sequence[str] | None, kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all settings that shape an answer, as plain data and without secrets."""
    given = {k: v for k, v in kwargs.items() if k not in _CALL_ONLY}
    known = model._get_invocation_params(stop=list(stop) if stop else None, **given)
    params = {k: plain(v) for k, v in {**known, **given}.items() if not _NOT_SHAPING.search(k)}
    if isinstance(params.get("tools"), list):
        params["tools"] = sorted(params["tools"], key=_order)
    params["model_settings"] = {
        name: plain(getattr(model, name))
        for name in model.model_fields_set
        if not _NOT_SHAPING.search(name)
    }
    return params


def _order(tool: Any) -> str:
    return canonical_json(tool) if isinstance(tool, Mapping) else repr(tool)
