"""From one call of an LLM to a request of the cache."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import BaseNode, NodeWithScore
from pydantic import BaseModel

from ragcache.binding import Identity, Options, controls, identify
from ragcache.keys import canonical_json
from ragcache.layout.located import Seen, beside_blocks, locate
from ragcache.plain import plain
from ragcache.retrieved import told
from ragcache.types import Document, Formatted, JsonObject, Message, Request

from .capture import CONTEXTS, around, condensed, tags
from .messages import last_user, message_of, turns
from .passages import Passage, Retrieval, passage_of
from .prompted import Variables

#: Settings of a model object that shape no answer, and its live parts.
_NOT_SHAPING = re.compile(
    r"client|callback|rate_limiter|^verbose$|timeout|retries|headers|^default_headers$"
    r"|secret|password|credential|(^|_)(api_)?key$|authorization|auth_token|access_token"
    r"|messages_to_prompt|completion_to_prompt|output_parser|query_wrapper_prompt|class_name"
)
#: Of the call itself.
CALL_ONLY = frozenset({"ragcache", "formatted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of the cache, its prompt, and whether the tenant is known."""

    request: Request
    formatted: Formatted
    is_anonymous: bool = False


def ask(
    messages: Sequence[ChatMessage],
    *,
    options: Options,
    variables: Variables,
    params: Mapping[str, Any],
    tools: Sequence[JsonObject] = (),
    asked_of_cache: Any = None,
) -> Asked:
    """Return the request that a call of an LLM makes.

    Args:
        messages: The prompt; a completion's is one user message.
        options: How the LLM was wrapped.
        variables: What the prompt's template was filled with.
        params: All settings that shape the answer, as plain data.
        tools: Tool schemas, where ragcache itself sends them.
        asked_of_cache: The call's own controls.

    Raises:
        RequestError: Two places name different tenants, or a control is unknown.
    """
    tagged = tags()
    who = identify(options.identity, {"instrument tags": tagged})
    retrievals = _retrievals(variables, who)
    read = tuple(message_of(m) for m in messages)
    passages = _visible(retrievals, read)
    formatted, standing = locate(read, passages)
    question = _question(messages, formatted, variables, _behind(retrievals, standing))
    history = tuple(message_of(m) for m in turns(messages))
    request = Request(
        tenant=who.tenant or f"anonymous-{secrets.token_hex(16)}",
        anonymous=who.tenant is None,
        principal=who.principal,
        question=question.text,
        exact_only=not question.is_matchable,
        documents=tuple(_document(seen) for seen in standing),
        history=history,
        standalone=condensed(question.text) if history else None,
        tools=tuple(tools),
        formatted=formatted,
        params=params,
    )
    fields = dict(options.request) | controls(tagged.get("ragcache"), asked_of_cache)
    fields |= _off(who, params)
    return Asked(
        request=replace(request, **fields), formatted=formatted, is_anonymous=who.tenant is None
    )


def _off(who: Identity, params: Mapping[str, Any]) -> dict[str, bool]:
    """Turn the answer cache off where it would be unsafe, or could not give all that is asked."""
    asks_more = (params.get("n") or 1) != 1 or bool(params.get("logprobs"))
    if who.tenant is None or asks_more:
        return {"no_cache": True, "no_store": True}
    return {}


# --- documents ---------------------------------------------------------------------------------


def _retrievals(variables: Variables, who: Identity) -> tuple[Retrieval, ...]:
    """Return what may stand in this prompt: told by hand, behind its context, or found around."""
    by_hand = tuple(
        Retrieval(query=block.query, passages=tuple(_told_passages(block.documents)))
        for block in told()
    )
    behind = CONTEXTS.find(variables.context, who.tenant) if variables.context else None
    found = (behind,) if behind is not None else tuple(_ours(around(), who))
    return (*by_hand, *found)


def _ours(retrievals: Sequence[Retrieval], who: Identity) -> Iterator[Retrieval]:
    for retrieval in retrievals:
        if not (retrieval.tenant and who.tenant and retrieval.tenant != who.tenant):
            yield retrieval


def _told_passages(documents: Sequence[Any]) -> Iterator[Passage]:
    for document in documents:
        if isinstance(document, Document):
            yield Passage(shown=document.text, document=document)
        elif isinstance(document, str | NodeWithScore | BaseNode):
            yield passage_of(document)


def _visible(retrievals: Sequence[Retrieval], messages: Sequence[Message]) -> tuple[Seen, ...]:
    """Return the documents, each as often as one retrieval gave it: retrievers may be nested."""
    whole = "\n".join(message.text() for message in messages)
    by_text: dict[str, list[Seen]] = {}
    for retrieval in retrievals:
        here: dict[str, list[Seen]] = {}
        for passage in retrieval.passages:
            seen = _seen(passage, whole)
            here.setdefault(seen.text, []).append(seen)
        for text, found in here.items():
            if len(found) > len(by_text.get(text, ())):
                by_text[text] = found
    return tuple(seen for found in by_text.values() for seen in found)


def _seen(passage: Passage, whole: str) -> Seen:
    """Return the passage as this prompt shows it: with its metadata, or its text alone."""
    document = passage.document
    shown = passage.shown if passage.shown.strip() in whole else document.text
    metadata = {"source": document.source, **document.metadata}
    return Seen(text=shown, metadata=metadata, origin=document)


def _behind(retrievals: Sequence[Retrieval], standing: Sequence[Seen]) -> tuple[Retrieval, ...]:
    """Return the retrievals of which something stands in the prompt."""
    texts = {_document(seen).text for seen in standing}
    return tuple(r for r in retrievals if any(p.document.text in texts for p in r.passages))


def _document(seen: Seen) -> Document:
    document: Document = seen.origin
    return document


# --- the question ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is asked, and whether its words alone may be matched with those of another one."""

    text: str
    is_matchable: bool


def _question(
    messages: Sequence[ChatMessage],
    formatted: Formatted,
    variables: Variables,
    retrievals: Sequence[Retrieval],
) -> _Question:
    """Return what is asked: what the template was filled with or the retriever's query, where the
    prompt repeats it; else the newest user message, without the documents in it.

    That message is more than a question where documents stand in it too, and is not all that is
    asked where others follow it: then only an equal prompt is the same question.
    """
    at = last_user(messages)
    is_last = at == len(messages) - 1
    text = "" if at is None else beside_blocks(formatted, at)
    has_blocks = bool(formatted.blocks) and formatted.index == at
    for query in (variables.query, *(r.query for r in reversed(retrievals))):
        if (asked := query.strip()) and asked in text:
            return _Question(text=asked, is_matchable=is_last)
    return _Question(text=text.strip(), is_matchable=is_last and not has_blocks)


# --- parameters --------------------------------------------------------------------------------


def params_of(settings: Mapping[str, Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings that shape an answer, as plain data and without secrets."""
    params = {k: plain(v) for k, v in kwargs.items() if k not in CALL_ONLY}
    if isinstance(params.get("tools"), list):
        params["tools"] = sorted(params["tools"], key=_order)
    params["model_settings"] = {
        k: plain(v) for k, v in settings.items() if not _NOT_SHAPING.search(k)
    }
    return params


def settings_of(llm: BaseModel) -> dict[str, Any]:
    """Return the settings of a model object, as they are now."""
    return {name: getattr(llm, name) for name in type(llm).model_fields}


def _order(tool: Any) -> str:
    return canonical_json(tool) if isinstance(tool, Mapping) else repr(tool)
