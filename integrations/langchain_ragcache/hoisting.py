"""An agent's retrieved documents, moved from tool messages to the question of their turn.

A retriever tool answers behind the question, and differently for each question; in front of it
the same documents are a prefix that other conversations share. Only documents that the tool
message carries as its artifact are moved, and only out of a text that can be cut and joined again.
Earlier turns keep theirs: a conversation stays append-only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, ToolMessage

from ragcache.layout import LayoutPolicy
from ragcache.layout.blocks import make_blocks
from ragcache.layout.located import Cut, Seen, cut
from ragcache.types import Block, Document, Formatted

from .asking import document_of, seen_of
from .messages import message_of, role_of, text_at, with_content

SEPARATOR = "\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hoisted:
    """Messages with the documents in front of the questions.

    Args:
        messages: For the model; the caller's own objects where nothing was moved.
        formatted: The same, with the newest turn's blocks located.
        documents: Of the blocks of the newest turn, then those of earlier turns.
    """

    messages: list[BaseMessage]
    formatted: Formatted
    documents: tuple[Document, ...]


def hoist(messages: Sequence[BaseMessage]) -> Hoisted | None:
    """Return the messages with documents hoisted; None where there are none to hoist."""
    moved = list(messages)
    turns: dict[int, list[Document]] = {}
    for at, message in enumerate(messages):
        question = _question_before(messages, at)
        found = _cut_out(message) if isinstance(message, ToolMessage) else None
        if question is not None and found is not None:
            documents = [document_of(seen) for seen in found.documents]
            turns.setdefault(question, []).extend(documents)
            moved[at] = _referring(message, found, documents)
    if not turns:
        return None
    heads = {at: _blocks(documents) for at, documents in turns.items()}
    for at, blocks in heads.items():
        moved[at] = _with_blocks(messages[at], blocks)
    return _located(moved, heads)


def _question_before(messages: Sequence[BaseMessage], at: int) -> int | None:
    for place in range(at - 1, -1, -1):
        if role_of(messages[place]) == "user":
            return place
    return None


def _cut_out(message: ToolMessage) -> Cut | None:
    """Return the tool's text cut into its documents, where every one of them is found."""
    artifact = message.artifact
    if not isinstance(message.content, str) or not isinstance(artifact, Sequence):
        return None
    documents = [seen for document in artifact if (seen := seen_of(document)) is not None]
    found = cut(message.content, _once(documents))
    if not isinstance(found, Cut) or len(found.documents) != len(_once(documents)):
        return None
    return found


def _once(documents: Sequence[Seen]) -> list[Seen]:
    return list({seen.text: seen for seen in documents if seen.text.strip()}.values())


def _blocks(documents: Sequence[Document]) -> tuple[Block, ...]:
    return make_blocks(documents, policy=LayoutPolicy())


def _referring(message: BaseMessage, found: Cut, documents: Sequence[Document]) -> BaseMessage:
    """Return the tool message with its documents replaced by their labels, in a stable order."""
    labels = ", ".join(sorted(f"[{block.label}]" for block in _blocks(documents)))
    text = f"{found.head}Retrieved documents: {labels}{found.tail}"
    return with_content(message, text)


def _with_blocks(message: BaseMessage, blocks: Sequence[Block]) -> BaseMessage:
    head = SEPARATOR.join(block.text for block in blocks) + SEPARATOR
    if isinstance(message.content, str):
        return with_content(message, head + message.content)
    return with_content(message, [{"type": "text", "text": head}, *message.content])


def _located(messages: list[BaseMessage], heads: Mapping[int, tuple[Block, ...]]) -> Hoisted:
    newest = max(heads)
    blocks = heads[newest]
    part = None if isinstance(messages[newest].content, str) else 0
    texts = tuple(block.text for block in blocks)
    tail = text_at(messages[newest], part)[len(SEPARATOR.join(texts)) :]
    earlier = [block for at, found in heads.items() if at != newest for block in found]
    return Hoisted(
        messages=messages,
        formatted=Formatted(
            messages=tuple(message_of(m) for m in messages),
            index=newest,
            part=part,
            separator=SEPARATOR,
            blocks=texts,
            tail=tail,
        ),
        documents=tuple(block.documents[0] for block in (*blocks, *earlier)),
    )


def sorted_tools(tools: Sequence[Any]) -> list[Any]:
    """Return the tools by name; as they are where one carries a cache marker of the caller's."""
    if any(_is_marked(tool) for tool in tools):
        return list(tools)
    return sorted(tools, key=tool_name)


def tool_name(tool: Any) -> str:
    """Return the name of a tool, whatever it is written as."""
    if isinstance(tool, Mapping):
        return str(tool.get("name") or (tool.get("function") or {}).get("name") or "")
    return str(getattr(tool, "name", tool))


def _is_marked(tool: Any) -> bool:
    extras = tool if isinstance(tool, Mapping) else getattr(tool, "extras", None) or {}
    return bool(extras.get("cache_control"))
