"""LlamaIndex's messages as ragcache reads them; the caller's own objects are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    ContentBlock,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
)

from ragcache.plain import plain
from ragcache.types import Content, JsonObject, Message

#: Written beside the content and sent from elsewhere, or never.
_NOT_SENT = frozenset({"tool_calls", "tool_call_id", "name", "ragcache"})


def message_of(message: ChatMessage) -> Message:
    """Return what a message says, as an OpenAI-compatible body carries it."""
    given = message.additional_kwargs
    answered = given.get("tool_call_id")
    return Message(
        role=message.role.value,
        content=_content(message.blocks),
        name=given.get("name"),
        tool_calls=_calls(message),
        tool_call_id=None if answered is None else str(answered),
        extra={k: plain(v) for k, v in given.items() if k not in _NOT_SENT},
    )


def text_at(message: ChatMessage, part: int | None) -> str:
    """Return the text of a message, of its content part where one is given."""
    block = message.blocks[_parts(message.blocks)[part or 0]]
    return block.text if isinstance(block, TextBlock) else ""


def with_blocks(
    message: ChatMessage, part: int | None, replacing: Sequence[ContentBlock]
) -> ChatMessage:
    """Return a copy of the message with other blocks in the place of its text."""
    blocks = list(message.blocks)
    at = _parts(blocks)[part or 0]
    if blocks[at : at + 1] == list(replacing):
        return message
    return message.model_copy(update={"blocks": [*blocks[:at], *replacing, *blocks[at + 1 :]]})


def turns(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the turns before the newest question: what a follow-up may lean on."""
    last = last_user(messages)
    return [m for m in messages[:last] if m.role.value not in _SYSTEM] if last else []


_SYSTEM = ("system", "developer")


def last_user(messages: Sequence[ChatMessage]) -> int | None:
    """Return where the newest user message stands."""
    return next(
        (at for at in range(len(messages) - 1, -1, -1) if messages[at].role.value == "user"), None
    )


def _content(blocks: Sequence[Any]) -> Content:
    shown = [blocks[at] for at in _parts(blocks)]
    if not shown:
        return ""
    if len(shown) == 1 and isinstance(shown[0], TextBlock):
        return shown[0].text
    return tuple(_part(block) for block in shown)


def _parts(blocks: Sequence[Any]) -> list[int]:
    """Return which blocks are content parts: tool calls and cache markers are none."""
    beside = (ToolCallBlock, CachePoint)
    return [at for at, block in enumerate(blocks) if not isinstance(block, beside)]


def _part(block: Any) -> JsonObject:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageBlock) and (url := _image_url(block)):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": block.block_type, **block.model_dump(mode="json", exclude={"block_type"})}


def _image_url(block: ImageBlock) -> str:
    if block.url:
        return str(block.url)
    if block.image is None:
        return ""
    data = block.image if isinstance(block.image, bytes) else bytes(str(block.image), "ascii")
    kind = block.image_mimetype or "image/png"
    return f"data:{kind};base64,{data.decode('ascii', 'replace')}"


def _calls(message: ChatMessage) -> tuple[JsonObject, ...]:
    """Return the tool calls, with their arguments in one order of keys."""
    blocks = [b for b in message.blocks if isinstance(b, ToolCallBlock)]
    if blocks:
        return tuple(_call(b.tool_call_id, b.tool_name, b.tool_kwargs) for b in blocks)
    return tuple(_old_call(call) for call in message.additional_kwargs.get("tool_calls") or ())


def _old_call(call: Any) -> JsonObject:
    body = call if isinstance(call, dict) else plain_object(call)
    function = body.get("function") or {}
    return _call(body.get("id"), str(function.get("name") or ""), function.get("arguments") or "{}")


def plain_object(value: Any) -> dict[str, Any]:
    """Return a client library's object as a dict, {} where it cannot be read."""
    dump = getattr(value, "model_dump", None)
    found = dump(mode="json") if dump is not None else value
    return dict(found) if isinstance(found, dict) else {}


def _call(id_: str | None, name: str, arguments: Any) -> JsonObject:
    function = {"name": name, "arguments": _canonical(arguments)}
    return {"id": id_, "type": "function", "function": function}


def _canonical(arguments: Any) -> str:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return str(arguments)  # a model may have written no JSON; then it is kept as it is
    return json.dumps(arguments, sort_keys=True, ensure_ascii=False)


def arguments_of(call: JsonObject) -> dict[str, Any]:
    """Return the arguments of a tool call, {} where the model wrote no JSON object."""
    try:
        found = json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
