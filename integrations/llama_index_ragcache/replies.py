"""A model's answer, between LlamaIndex and ragcache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)

from ragcache.binding import told_of
from ragcache.targets.usage import usage_of
from ragcache.types import Answer, Completion, JsonObject

from .messages import message_of

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
_COUNTS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

Response: TypeAlias = ChatResponse | CompletionResponse
R = TypeVar("R", bound=Response)


def completion_of(response: Response) -> Completion:
    """Return what ragcache reads of a response; the response itself is carried along."""
    raw = _opened(response.raw)
    return Completion(
        text=text_of(response),
        finish_reason=finish_of(response),
        tool_calls=_calls(response),
        refusal=_opened(_choice(raw).get("message")).get("refusal"),
        usage=usage_of(_opened(raw.get("usage"))),
        model=str(raw.get("model") or ""),
        id=str(raw.get("id") or ""),
        raw=response,
    )


def _opened(value: Any) -> dict[str, Any]:
    """Return a provider's body, or a part of it, as a dict: clients give objects, dicts, or dicts
    of objects; {} where it cannot be read.
    """
    dump = getattr(value, "model_dump", None)
    found = dump(mode="json") if dump is not None else value
    return dict(found) if isinstance(found, Mapping) else {}


def text_of(response: Response) -> str:
    """Return the text of a response."""
    if isinstance(response, CompletionResponse):
        return response.text
    return response.message.content or ""


def _calls(response: Response) -> tuple[JsonObject, ...]:
    return (
        () if isinstance(response, CompletionResponse) else message_of(response.message).tool_calls
    )


def finish_of(response: Response) -> str | None:
    """Return why the answer ended, None where nobody says."""
    if isinstance(response, ChatResponse) and not _is_text(response.message):
        return "content_blocks"  # more than text: a stored answer could not give it back
    raw = _opened(response.raw)
    said = {**response.additional_kwargs, **_beside(response), **raw}
    said |= _known(_opened(raw.get("delta"))) | _known(_choice(raw))
    reason = next((said[k] for k in _FINISH_KEYS if said.get(k)), None)
    return _FINISHED.get(str(reason).lower(), str(reason)) if reason else None


def _beside(response: Response) -> dict[str, Any]:
    return response.message.additional_kwargs if isinstance(response, ChatResponse) else {}


def _known(said: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in said.items() if v is not None}


def is_closing(response: Response) -> bool:
    """Whether a piece of a stream says why it ended, or comes after that: counts of tokens."""
    raw = response.raw
    choices = raw.get("choices") if isinstance(raw, Mapping) else getattr(raw, "choices", None)
    if choices is not None:
        first = choices[0] if choices else None
        return first is None or bool(_any(first))
    inner = raw.get("delta") if isinstance(raw, Mapping) else getattr(raw, "delta", None)
    return bool(_any(raw) or _any(inner))


def _any(said: Any) -> Any:
    """Return the reason that a body or a part of one gives, without opening all of it."""
    if isinstance(said, Mapping):
        return next((said[k] for k in _FINISH_KEYS if said.get(k)), None)
    return next((v for k in _FINISH_KEYS if (v := getattr(said, k, None))), None)


def _is_text(message: ChatMessage) -> bool:
    return all(block.block_type in ("text", "thinking", "tool_call") for block in message.blocks)


def _choice(raw: Mapping[str, Any]) -> dict[str, Any]:
    choices = raw.get("choices")
    return _opened(choices[0]) if isinstance(choices, list) and choices else {}


# --- what the caller gets ----------------------------------------------------------------------


def chat_reply(answer: Answer) -> ChatResponse:
    """Return the answer as a chat response, never shared with another caller."""
    raw = answer.completion.raw if answer.completion else None
    if isinstance(raw, ChatResponse):
        return _own(raw, answer, delta=None)
    return chat_piece(answer.text, None, answer)


def completion_reply(answer: Answer) -> CompletionResponse:
    """Return the answer as a completion, never shared with another caller."""
    raw = answer.completion.raw if answer.completion else None
    if isinstance(raw, CompletionResponse):
        return _own(raw, answer, delta=None)
    return completion_piece(answer.text, None, answer)


def chat_piece(text: str, delta: str | None, answer: Answer | None = None) -> ChatResponse:
    """Return a piece of an answer that no model of LlamaIndex's gave."""
    return ChatResponse(
        message=ChatMessage(
            role=MessageRole.ASSISTANT, blocks=[TextBlock(text=text), *_call_blocks(answer)]
        ),
        delta=delta,
        raw=_raw(answer) if answer else None,
        additional_kwargs=_told(answer) if answer else {},
    )


def _call_blocks(answer: Answer | None) -> list[ToolCallBlock]:
    completion = answer.completion if answer else None
    return [
        ToolCallBlock(
            tool_call_id=call.get("id"),
            tool_name=call["function"]["name"],
            tool_kwargs=call["function"]["arguments"] or {},
        )
        for call in (completion.tool_calls if completion else ())
    ]


def completion_piece(
    text: str, delta: str | None, answer: Answer | None = None
) -> CompletionResponse:
    """Return a piece of a completion that no model of LlamaIndex's gave."""
    return CompletionResponse(
        text=text,
        delta=delta,
        raw=_raw(answer) if answer else None,
        additional_kwargs=_told(answer) if answer else {},
    )


def _own(response: R, answer: Answer, *, delta: str | None) -> R:
    """Return a copy that says what the cache did; one of a shared call spent nothing."""
    copy = copied(response, deep=True)
    copy.delta = delta
    copy.additional_kwargs |= {"ragcache": told_of(answer)}
    if answer.status.collapsed:
        copy.additional_kwargs |= _COUNTS
        copy.raw = _raw(answer)
    return copy


def copied(response: R, *, deep: bool = False) -> R:
    """Return a copy of a response that its caller may change."""
    update: dict[str, Any] = {"additional_kwargs": dict(response.additional_kwargs)}
    if isinstance(response, ChatResponse):
        update["message"] = response.message.model_copy(deep=True) if deep else _loose(response)
    untyped: Any = response
    copy: R = untyped.model_copy(update=update)
    return copy


def _loose(response: ChatResponse) -> ChatMessage:
    message = response.message
    return message.model_copy(
        update={
            "blocks": list(message.blocks),
            "additional_kwargs": dict(message.additional_kwargs),
        }
    )


def closed(response: R, answer: Answer, *, delta: str | None) -> R:
    """Return a model's own response as the closing piece of a stream, with the status."""
    return _own(response, answer, delta=delta)


def _told(answer: Answer) -> dict[str, Any]:
    return {**_counts(answer), "ragcache": told_of(answer)}


def _counts(answer: Answer) -> dict[str, int]:
    usage = answer.usage
    if usage.input_tokens is None or usage.output_tokens is None:
        return {}
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _raw(answer: Answer) -> dict[str, Any]:
    """Return what stands for a provider's body, in the shape that LlamaIndex's readers know."""
    completion = answer.completion
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if completion and completion.tool_calls:
        message["tool_calls"] = [dict(call) for call in completion.tool_calls]
    reason = (completion.finish_reason if completion else None) or "stop"
    return {
        "id": completion.id if completion else "",
        "model": completion.model if completion else "",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _counts(answer) or None,
        "ragcache": told_of(answer),
    }
