"""LangChain's messages as ragcache reads them, and back: the caller's own objects are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from ragcache.plain import plain
from ragcache.types import Content, JsonObject, Message

#: Written by LangChain or by us beside the content; never sent, or sent from elsewhere.
_NOT_SENT = frozenset({"parsed", "ragcache", "tool_calls", "__openai_role__"})


def message_of(message: BaseMessage) -> Message:
    """Return what a message says, without ids, usage and marks of where it came from."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    answered = message.tool_call_id if isinstance(message, ToolMessage) else None
    return Message(
        role=role_of(message),
        content=_content(message.content),
        name=message.name,
        tool_calls=tuple(_call(call) for call in calls),
        tool_call_id=answered,
        extra=_extra(message),
    )


def role_of(message: BaseMessage) -> str:
    """Return the role that the message is sent with."""
    if isinstance(message, HumanMessage):
        return "user"
    if isinstance(message, AIMessage):
        return "assistant"
    if isinstance(message, SystemMessage):
        return str(message.additional_kwargs.get("__openai_role__", "system"))
    return message.role if isinstance(message, ChatMessage) else message.type


def text_at(message: BaseMessage, part: int | None) -> str:
    """Return the text of the message, or of one of its content parts."""
    content: Any = message.content if part is None else message.content[part]
    return str(content if isinstance(content, str) else content["text"])


def with_content(message: BaseMessage, content: Any, part: int | None = None) -> BaseMessage:
    """Return a copy of the message with another content: a text, or text parts.

    With `part` given the content takes that part's place, and keeps what else the part carried
    (a marker of the caller's stays at its end).
    """
    if part is None:
        return message.model_copy(update={"content": content})
    parts: list[Any] = list(message.content)
    old = parts[part]
    if isinstance(content, str):
        parts[part] = content if isinstance(old, str) else {**old, "text": content}
    else:
        rest = {} if isinstance(old, str) else {k: v for k, v in old.items() if k != "text"}
        parts[part : part + 1] = [*content[:-1], {**content[-1], **rest}]
    return message.model_copy(update={"content": parts})


def turns(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Return the turns before the newest question: what a follow-up may lean on."""
    last = last_human(messages)
    return [m for m in messages[:last] if not isinstance(m, SystemMessage)] if last else []


def last_human(messages: Sequence[BaseMessage]) -> int | None:
    """Return where the newest human message stands."""
    for at in range(len(messages) - 1, -1, -1):
        if role_of(messages[at]) == "user":
            return at
    return None


def _content(content: Any) -> Content:
    if isinstance(content, str):
        return content
    return tuple(_part(part) for part in content)


def _part(part: Any) -> JsonObject:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    whole: JsonObject = plain(part)
    return whole


def _call(call: Any) -> JsonObject:
    return {"name": call["name"], "args": plain(call["args"]), "id": call.get("id")}


def _extra(message: BaseMessage) -> JsonObject:
    given = message.additional_kwargs.items()
    extra = {k: plain(v) for k, v in given if v is not None and k not in _NOT_SENT}
    calls = message.additional_kwargs.get("tool_calls")
    if calls and not getattr(message, "tool_calls", None):
        extra["tool_calls"] = plain(calls)
    if isinstance(message, ToolMessage) and message.status != "success":
        extra["status"] = message.status
    return extra
