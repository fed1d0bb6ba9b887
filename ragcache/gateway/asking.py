"""From a body and a credential to a request of the cache. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..binding import CONTROLS
from ..layout.located import Seen, beside_blocks, locate
from ..types import Document, Formatted, Message, Request, Sharing
from .bodies import CacheBody, ChatBody, PromptBody
from .credentials import Caller
from .faults import Fault, malformed
from .recognised import recognised

_READ: Final = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})
#: Members of a body with a place of their own in the request, or of the transport.
_PLACED: Final = frozenset(
    {"model", "messages", "prompt", "tools", "stream", "stream_options", "ragcache"}
)
_SYSTEM: Final = frozenset({"system", "developer"})
_QUESTION_CHARS_MAX: Final = 1000
_OFF: Final = {"no_cache": True, "no_store": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the operator has set for all requests.

    Args:
        models: Those that may be asked, the default first.
        sharing: Who else is served what one principal's request has stored.
        system: System text of requests that bring none.
    """

    models: tuple[str, ...]
    sharing: Sharing = "private"
    system: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request of the cache, and how its answer is to be given.

    `explains`: the body speaks to the cache, so that its answer may say more than OpenAI's does.
    """

    request: Request
    model: str
    stream: bool
    include_usage: bool
    explains: bool


def asked_in_chat(
    body: ChatBody, whole: Mapping[str, Any], caller: Caller, terms: Terms, given: Mapping[str, Any]
) -> Asked:
    """Return the request of a chat.

    Args:
        body: As checked.
        whole: The same as it came.
        caller: Who asks.
        terms: The operator's.
        given: Controls of the HTTP request, and its id.

    Raises:
        Fault: The model is not offered, or the documents have no place in the messages.
    """
    messages = tuple(_message(m) for m in whole["messages"])
    if terms.system and not any(m.role in _SYSTEM for m in messages):
        messages = (Message(role="system", content=terms.system), *messages)
    prompt = _laid(messages, body.ragcache)
    prompt["tools"] = tuple(whole.get("tools") or ())
    live = messages[-1].role in ("tool", "function")  # what a tool said now is of this moment
    return _asked(body, whole, caller, terms, given, prompt, off=live or _asks_more(whole))


def asked_as_text(
    body: PromptBody,
    whole: Mapping[str, Any],
    caller: Caller,
    terms: Terms,
    given: Mapping[str, Any],
) -> Asked:
    """Return the request of a bare prompt. Token ids and several prompts are passed through.

    Raises:
        Fault: The model is not offered, or the documents do not stand in the prompt.
    """
    texts = body.prompt if isinstance(body.prompt, list) else [body.prompt]
    plain = len(texts) == 1 and isinstance(texts[0], str)
    content: Any = texts[0] if plain else ({"type": "prompt", "prompt": whole["prompt"]},)
    messages = (Message(role="user", content=content),)
    documents = _given(body.ragcache) or recognised(messages)
    formatted, standing = locate(messages, documents)
    if body.ragcache.documents and not standing:
        raise _no_place("their texts must stand in the prompt")
    prompt = _formatted(formatted, standing)
    return _asked(body, whole, caller, terms, given, prompt, off=not plain or _asks_more(whole))


def _asked(
    body: ChatBody | PromptBody,
    whole: Mapping[str, Any],
    caller: Caller,
    terms: Terms,
    given: Mapping[str, Any],
    prompt: Mapping[str, Any],
    *,
    off: bool,
) -> Asked:
    model = body.model or terms.models[0]
    if model not in terms.models:
        raise Fault(
            404,
            f"the model {model!r} is not offered here: GET /v1/models lists what is",
            code="model_not_found",
            param="model",
        )
    told = {n: v for n, v in body.ragcache if n in CONTROLS and n in body.ragcache.model_fields_set}
    request = Request(
        tenant=caller.tenant,
        principal=caller.principal,
        access=caller.access,
        sharing=terms.sharing,
        model=model,
        params={name: value for name, value in whole.items() if name not in _PLACED},
        # What the question rests on is somewhere in its text: another text is another question.
        exact_only=not prompt["documents"],
        **prompt,
        **{**told, **given, **(_OFF if off else {})},
    )
    return Asked(
        request=request,
        model=model,
        stream=bool(body.stream),
        include_usage=body.include_usage,
        explains="ragcache" in whole,
    )


def _asks_more(whole: Mapping[str, Any]) -> bool:
    """Whether a stored answer could not give all that is asked for."""
    modalities = whole.get("modalities") or ["text"]
    return (
        (whole.get("n") or 1) != 1
        or (whole.get("best_of") or 1) != 1
        or bool(whole.get("logprobs"))
        or whole.get("logprobs") == 0  # of /v1/completions: the chosen tokens' own
        or bool(whole.get("echo"))
        or bool(whole.get("audio"))
        or modalities != ["text"]
    )


def _message(body: Mapping[str, Any]) -> Message:
    """Return a message that goes out as it came: no content is no empty text."""
    content = body.get("content")
    extra = {name: value for name, value in body.items() if name not in _READ}
    if content is None and "content" in body:
        extra["content"] = None
    return Message(
        role=body["role"],
        content=content if isinstance(content, str) else tuple(content or ()) or "",
        name=body.get("name"),
        tool_calls=tuple(body.get("tool_calls") or ()),
        tool_call_id=body.get("tool_call_id"),
        extra=extra,
    )


# --- documents and the question ----------------------------------------------------------------


def _laid(messages: tuple[Message, ...], cache: CacheBody) -> dict[str, Any]:
    """Return the prompt's fields of a request: as it came where its documents stand in it (or
    there are none), else to be rendered with the documents in front of the question.
    """
    documents = _given(cache) or recognised(messages)
    formatted, standing = locate(messages, documents)
    if cache.documents and not standing:
        return _rendered(messages, tuple(seen.origin for seen in documents))
    return _formatted(formatted, standing)


def _formatted(formatted: Formatted, standing: Sequence[Seen]) -> dict[str, Any]:
    messages = formatted.messages
    last = _last_user(messages)
    before = messages[: last or 0]
    return {
        "question": "" if last is None else _question(formatted, last),
        "documents": tuple(seen.origin for seen in standing),
        "history": tuple(m for m in before if m.role not in _SYSTEM),
        "formatted": formatted,
    }


def _rendered(messages: tuple[Message, ...], documents: tuple[Document, ...]) -> dict[str, Any]:
    first = messages[0] if messages[0].role in _SYSTEM else None
    turns, newest = messages[1 if first else 0 : -1], messages[-1]
    if newest.role != "user" or not isinstance(newest.content, str) or newest is first:
        raise _no_place("the last message must be a user's, with its content a text")
    if any(m.role in _SYSTEM for m in turns) or not isinstance(first.content if first else "", str):
        raise _no_place("there may be one system message, the first, with its content a text")
    return {
        "system": first.text() if first else "",
        "history": turns,
        "question": newest.content,
        "documents": documents,
    }


def _no_place(why: str) -> Fault:
    return malformed(
        f"ragcache.documents have no place in this prompt: {why}", "ragcache.documents"
    )


def _given(cache: CacheBody) -> tuple[Seen, ...]:
    """Return the documents that the body names, each text once."""
    found: dict[str, Seen] = {}
    for given in cache.documents:
        if isinstance(given, str):
            document = Document(text=given)
        else:
            document = Document(
                text=given.text,
                source=given.source,
                id=given.id,
                score=given.score,
                metadata=given.metadata,
                access=frozenset(given.access),
            )
        printed = {"source": document.source, "id": document.id, **document.metadata}
        seen = Seen(text=document.text, metadata=printed, origin=document)
        if document.text.strip():
            found.setdefault(document.text, seen)
    return tuple(found.values())


def _last_user(messages: Sequence[Message]) -> int | None:
    found = [at for at, message in enumerate(messages) if message.role == "user"]
    return found[-1] if found else None


def _question(formatted: Formatted, at: int) -> str:
    """Return what the newest user message asks, without the documents in it.

    Of a long text the last paragraph: what is understood of a question is bought by its length.
    The rest is part of the key all the same, byte for byte.
    """
    text = beside_blocks(formatted, at).strip()
    if len(text) <= _QUESTION_CHARS_MAX:
        return text
    return text.rpartition("\n\n")[2].strip()[-_QUESTION_CHARS_MAX:].strip()
