"""Prompts that somebody else formatted: only the order of the blocks may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..types import Formatted, Message


def text_of(formatted: Formatted) -> str:
    """Return the text in which the blocks are said to stand."""
    content = formatted.messages[formatted.index].content
    if isinstance(content, str):
        return content if formatted.part is None else ""
    if formatted.part is None or formatted.part >= len(content):
        return ""
    return str(content[formatted.part].get("text", ""))


def why_unchanged(formatted: Formatted, documents: int) -> str:
    """Return why the prompt must go out as it is, empty where its blocks may be moved."""
    if not formatted.blocks:
        return formatted.unchanged_because
    if not 0 <= formatted.index < len(formatted.messages):
        return "the message of the blocks does not exist"
    if len(formatted.blocks) > documents:
        return "there are more blocks than documents"
    joined = formatted.head + formatted.separator.join(formatted.blocks) + formatted.tail
    if joined != text_of(formatted):
        return "cutting and joining did not give the same bytes"
    if len(formatted.blocks) > 1 and not formatted.separator:
        return "blocks without a separator cannot be moved"
    return ""


def moved(formatted: Formatted, order: Sequence[int]) -> tuple[Message, ...]:
    """Return the messages with the blocks in another order, every other byte as it was."""
    blocks = formatted.separator.join(formatted.blocks[at] for at in order)
    text = formatted.head + blocks + formatted.tail
    message = formatted.messages[formatted.index]
    if isinstance(message.content, str):
        changed = replace(message, content=text)
    else:
        parts = list(message.content)
        assert formatted.part is not None  # noqa: S101 -- `why_unchanged` saw to it
        parts[formatted.part] = {**parts[formatted.part], "text": text}
        changed = replace(message, content=tuple(parts))
    messages = list(formatted.messages)
    messages[formatted.index] = changed
    return tuple(messages)


def cuts_of(formatted: Formatted, blocks: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return for each moved block the message it stands in and where it ends in its text."""
    content = formatted.messages[formatted.index].content
    at = len(formatted.head)
    if formatted.part is not None and not isinstance(content, str):
        at += sum(len(str(part.get("text", ""))) for part in content[: formatted.part])
    cuts = []
    for text in blocks:
        at += len(text)
        cuts.append((formatted.index, at))
        at += len(formatted.separator)
    return tuple(cuts)
