"""Prompts that somebody else formatted: only the order of the blocks may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..keys import content_hash, fingerprint
from ..types import Block, Document, Formatted, Label, Layout, Message, Request
from .assembly import Context, finished, head_of, ordered, step_of
from .canonical import canonical_tools
from .plan import Part
from .render import parts_of


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


def foreign_layout(request: Request, formatted: Formatted, context: Context) -> Layout:
    """Return a prompt that somebody else formatted, its blocks moved where that is safe."""
    tools = canonical_tools(request.tools)
    reason = why_unchanged(formatted, len(request.documents))
    if reason or not formatted.blocks:
        head = head_of(parts_of(formatted.messages, tools), context.count)
        layout = finished(
            formatted.messages,
            tools,
            head=head,
            blocks=(),
            cuts=(),
            steps=(),
            context=context,
            notes=(f"sent unchanged: {reason}",) if reason else (),
        )
        return replace(layout, blocks=_standing(request.documents))
    known = len(formatted.blocks)
    blocks = _located(formatted, request.documents[:known])
    ahead = parts_of(formatted.messages[: formatted.index], tools)
    head = head_of((*ahead, Part(name="head", text=formatted.head)), context.count)
    placed = ordered(blocks, head, context, moving=True)
    layout = finished(
        moved(formatted, [block.rank for block in placed]),
        tools,
        head=head,
        blocks=placed,
        cuts=cuts_of(formatted, [block.text for block in placed]),
        steps=tuple([step_of(block, context) for block in placed]),
        context=context,
    )
    rest = _standing(request.documents[known:], first=known)
    return replace(layout, blocks=(*layout.blocks, *rest)) if rest else layout


def _located(formatted: Formatted, documents: Sequence[Document]) -> tuple[Block, ...]:
    """Return the located blocks. They carry no label: their format is somebody else's."""
    seen: dict[str, int] = {}
    blocks = []
    for rank, (text, document) in enumerate(zip(formatted.blocks, documents, strict=True)):
        copy = seen.get(text, 0)
        seen[text] = copy + 1
        key = content_hash(text) if not copy else fingerprint(text, copy)
        blocks.append(Block(label=Label(""), text=text, hash=key, documents=(document,), rank=rank))
    return tuple(blocks)


def _standing(documents: Sequence[Document], *, first: int = 0) -> tuple[Block, ...]:
    """Return documents that stay where they stand in the prompt: an answer rests on them too."""
    return tuple(
        Block(
            label=Label(""),
            text=document.text,
            hash=content_hash(document.text),
            documents=(document,),
            rank=rank,
        )
        for rank, document in enumerate(documents, first)
    )
