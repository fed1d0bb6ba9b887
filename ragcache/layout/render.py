"""The prompt as messages, and its rendered form that offsets refer to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..keys import canonical_json
from ..types import Block, JsonObject, Message
from .plan import Part

BLOCK_SEPARATOR = "\n\n"


def tail_text(question: str, *, volatile: JsonObject, note: str = "", references: str = "") -> str:
    """Return what stands behind the last block: notes, what varies, the question."""
    values = "\n".join(
        f"{key}: {_plain(volatile[key])}" for key in sorted(volatile) if _says(volatile[key])
    )
    return BLOCK_SEPARATOR.join(piece for piece in (references, note, values, question) if piece)


def rank_note(blocks: Sequence[Block]) -> str:
    """Return the retrieval order of the blocks for the model, empty where it is the printed one."""
    ranked = sorted(blocks, key=lambda block: block.rank)
    if list(ranked) == list(blocks):
        return ""
    labels = ", ".join(str(block.label) for block in ranked)
    return f"Documents by relevance, most relevant first: {labels}"


def reference_note(blocks: Sequence[Block]) -> str:
    """Return the note that earlier blocks of the conversation apply again."""
    if not blocks:
        return ""
    return f"Documents above that apply again: {', '.join(str(b.label) for b in blocks)}"


def _says(value: Any) -> bool:
    return value is not None and value not in ("", [], (), {})


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (Mapping, list, tuple, bool, int, float)):
        return canonical_json(value)
    return str(value)


def render(messages: Sequence[Message], tools: Sequence[JsonObject] = ()) -> str:
    """Return the prompt as one text: tools, then each message with its role, text parts only.

    Not what any one template makes of it: a model of it, in which an equal start means that the
    template's output starts equally too.
    """
    return "".join(part.text for part in parts_of(messages, tools))


def parts_of(messages: Sequence[Message], tools: Sequence[JsonObject] = ()) -> tuple[Part, ...]:
    """Return the named pieces of a prompt, whole messages at the finest."""
    parts = [Part(name="tools", text=canonical_json([dict(t) for t in tools]))] if tools else []
    counts: dict[str, int] = {}
    for message in messages:
        counts[message.role] = counts.get(message.role, 0) + 1
        number = f" {counts[message.role]}" if counts[message.role] > 1 else ""
        mark = len(_mark(message).encode())
        parts.append(Part(name=f"{message.role} message{number}", text=opening(message), mark=mark))
    return tuple(parts)


def opening(message: Message) -> str:
    """Return a message of the rendered prompt."""
    calls = (
        canonical_json([dict(call) for call in message.tool_calls]) if message.tool_calls else ""
    )
    return f"{_mark(message)}{message.text()}{calls}\n"


def _mark(message: Message) -> str:
    return f"<|{message.role}|>\n"


def boundaries_of(
    messages: Sequence[Message], parts: Sequence[Part], cuts: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """Return the offsets in the rendered prompt behind the head and behind each block."""
    tools = len(parts) - len(messages)
    at = sum(len(part.text) for part in parts[:tools])
    head, starts = at, []
    for index, (message, part) in enumerate(zip(messages, parts[tools:], strict=True)):
        starts.append(at + len(f"<|{message.role}|>\n"))
        at += len(part.text)
        if index == 0 and message.role == "system":
            head = at
    return (head, *(starts[index] + offset for index, offset in cuts))
