"""A model's answer, between LangChain and ragcache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import BaseModel, ValidationError

from ragcache.binding import told_of
from ragcache.types import UNKNOWN_USAGE, Answer, Completion, Usage

#: Ways in which providers say that an answer ended by itself, or how else.
_FINISHED = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "stop": "stop",
    "completed": "stop",
    "complete": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
}
_FINISH_KEYS = ("finish_reason", "stop_reason", "done_reason", "finishReason")


def completion_of(result: ChatResult) -> Completion:
    """Return what ragcache reads of a result; the result itself is carried along."""
    generation = result.generations[0]
    said = {**(result.llm_output or {}), **(generation.generation_info or {})}
    return replace(completion_of_message(generation.message, said), raw=result)


def completion_of_message(message: BaseMessage, said: Mapping[str, Any]) -> Completion:
    """Return what ragcache reads of a message; `said` is what was told beside it."""
    said = {**message.response_metadata, **said}
    return Completion(
        text=text_of(message),
        finish_reason=_finish(message, said),
        tool_calls=tuple(dict(c) for c in getattr(message, "tool_calls", ())),
        refusal=message.additional_kwargs.get("refusal"),
        usage=usage_of(getattr(message, "usage_metadata", None)),
        model=str(said.get("model_name") or said.get("model") or ""),
        id=message.id or "",
    )


def text_of(message: BaseMessage) -> str:
    """Return the text parts, joined."""
    if isinstance(message.content, str):
        return message.content
    return "".join(p if isinstance(p, str) else _text(p) for p in message.content)


def _text(part: Mapping[str, Any]) -> str:
    return str(part.get("text") or "") if part.get("type") == "text" else ""


def _finish(message: BaseMessage, said: Mapping[str, Any]) -> str | None:
    if not isinstance(message.content, str) and not all(
        isinstance(p, str) or p.get("type") == "text" for p in message.content
    ):
        return "content_blocks"  # more than text: a stored answer could not give it back
    reason = next((said[k] for k in _FINISH_KEYS if said.get(k)), None) or said.get("status")
    return _FINISHED.get(str(reason).lower(), str(reason)) if reason else None


def usage_of(usage: UsageMetadata | None) -> Usage:
    """Return LangChain's usage, whose input count includes what was read from a cache."""
    if not usage:
        return UNKNOWN_USAGE
    details = dict(usage.get("input_token_details") or {})
    hour = details.get("ephemeral_1h_input_tokens")
    written = details.get("cache_creation") or _sum(
        details.get("ephemeral_5m_input_tokens"), hour, details.get("cache_creation")
    )
    return Usage(
        input_tokens=usage.get("input_tokens"),
        cached_tokens=_int(details.get("cache_read")),
        cache_write_tokens=_int(written),
        cache_write_1h_tokens=_int(hour),
        output_tokens=usage.get("output_tokens"),
        reasoning_tokens=(usage.get("output_token_details") or {}).get("reasoning"),
    )


def _sum(*counts: Any) -> int | None:
    known = [int(c) for c in counts if c is not None]
    return sum(known) if known else None


def _int(count: Any) -> int | None:
    return None if count is None else int(count)


def no_usage() -> UsageMetadata:
    """Return the usage of an answer that cost nothing."""
    return UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)


# --- whole answers -----------------------------------------------------------------------------


def readable(answer: Answer, schema: type[BaseModel] | None) -> bool:
    """Whether a stored answer still is what the schema wants; a fresh one is the model's affair."""
    if schema is None or answer.status.hit is None:
        return True
    try:
        schema.model_validate_json(answer.text)
    except ValidationError:
        return False
    return True


def result_of(answer: Answer, schema: type[BaseModel] | None = None) -> ChatResult:
    """Return the answer as LangChain's own objects, never shared with another caller."""
    raw = answer.completion.raw if answer.completion else None
    if not isinstance(raw, ChatResult):
        return _stored_result(answer, schema)
    free = answer.status.collapsed
    generations = [_copied(g, answer if not at else None) for at, g in enumerate(raw.generations)]
    if free:
        for generation in generations:
            _spend_nothing(generation.message)
    output = {k: v for k, v in (raw.llm_output or {}).items() if not free or k != "token_usage"}
    return ChatResult(generations=generations, llm_output=output if raw.llm_output else None)


def _copied(generation: ChatGeneration, answer: Answer | None) -> ChatGeneration:
    message = generation.message.model_copy(deep=True)
    if answer is not None:
        message.response_metadata = {**message.response_metadata, "ragcache": told_of(answer)}
    info = dict(generation.generation_info) if generation.generation_info else None
    return ChatGeneration(message=message, generation_info=info)


def _spend_nothing(message: BaseMessage) -> None:
    if isinstance(message, AIMessage) and message.usage_metadata is not None:
        message.usage_metadata = no_usage()


def _stored_result(answer: Answer, schema: type[BaseModel] | None) -> ChatResult:
    message = AIMessage(
        content=answer.text,
        additional_kwargs=_parsed(answer, schema),
        response_metadata=_metadata(answer),
        usage_metadata=no_usage(),
    )
    return ChatResult(generations=[ChatGeneration(message=message)])


def _parsed(answer: Answer, schema: type[BaseModel] | None) -> dict[str, Any]:
    """Return what structured output reads beside the text: an object of the caller's class."""
    if schema is None:
        return {}
    return {"parsed": schema.model_validate_json(answer.text), "refusal": None}


def _metadata(answer: Answer) -> dict[str, Any]:
    completion = answer.completion
    known = {
        "model_name": completion.model if completion else "",
        "finish_reason": (completion.finish_reason if completion else None) or "stop",
        "ragcache": told_of(answer),
    }
    return {name: value for name, value in known.items() if value}


# --- pieces ------------------------------------------------------------------------------------


def piece(text: str) -> ChatGenerationChunk:
    """Return a piece of text."""
    return ChatGenerationChunk(message=AIMessageChunk(content=text))


def copied_piece(chunk: ChatGenerationChunk) -> ChatGenerationChunk:
    """Return a copy that LangChain may write its ids into: others replay the same piece."""
    message = chunk.message
    update: dict[str, Any] = {
        "response_metadata": dict(message.response_metadata),
        "additional_kwargs": dict(message.additional_kwargs),
    }
    if not isinstance(message.content, str):
        update["content"] = [p if isinstance(p, str) else dict(p) for p in message.content]
    info = dict(chunk.generation_info) if chunk.generation_info else None
    return ChatGenerationChunk(message=message.model_copy(update=update), generation_info=info)


def is_last(chunk: ChatGenerationChunk) -> bool:
    """Whether the model says that nothing follows."""
    return getattr(chunk.message, "chunk_position", None) == "last"


def last_piece(answer: Answer, held: ChatGenerationChunk | None) -> ChatGenerationChunk:
    """Return the closing piece: the model's own where it has one, with the status of the answer."""
    if held is not None:
        told = {**held.message.response_metadata, "ragcache": told_of(answer)}
        held.message.response_metadata = told
        if answer.status.collapsed:
            _spend_nothing(held.message)
        return held
    message = AIMessageChunk(
        content="", response_metadata={"ragcache": told_of(answer)}, chunk_position="last"
    )
    return ChatGenerationChunk(message=message)


def closing_piece(answer: Answer, schema: type[BaseModel] | None = None) -> ChatGenerationChunk:
    """Return all but the text of a whole answer, as the closing piece of its stream."""
    message = result_of(answer, schema).generations[0].message
    calls = [
        {"name": c["name"], "args": _json(c["args"]), "id": c["id"], "index": at}
        for at, c in enumerate(getattr(message, "tool_calls", ()))
    ]
    chunk = AIMessageChunk(
        content="",
        additional_kwargs={k: v for k, v in message.additional_kwargs.items() if k != "tool_calls"},
        response_metadata=message.response_metadata,
        usage_metadata=getattr(message, "usage_metadata", None),
        tool_call_chunks=calls,  # type: ignore[arg-type]  # plain dicts become ToolCallChunks
        chunk_position="last",
    )
    return ChatGenerationChunk(message=chunk)


def _json(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
