"""The caller's own cache markers in LlamaIndex's messages and tools, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import CachePoint, ChatMessage

from ragcache.layout.markers import AHEAD, Life, Room, life_of, room_left


def room(
    llm: Any, messages: Sequence[ChatMessage], arguments: Mapping[str, Any], *, at: int
) -> Room:
    """Return what is left for markers in message `at`."""
    if getattr(llm, "cache_idx", None) is not None:
        return Room(places=0, lives=frozenset())  # the LLM marks each message itself
    return room_left(_callers(messages, arguments), at=at)


def _callers(
    messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
) -> Iterator[tuple[int, Life]]:
    """Yield place and lifetime of each marker that the caller set, in the provider's order."""
    for tool in arguments.get("tools") or ():
        if isinstance(tool, Mapping) and tool.get("cache_control"):
            yield AHEAD, life_of(tool["cache_control"])
    for at, message in enumerate(messages):
        if message.role.value == "system":
            continue  # sent as plain text, without markers
        for block in message.blocks:
            if isinstance(block, CachePoint):
                yield at, life_of(block.cache_control.model_dump())
        if marker := message.additional_kwargs.get("cache_control"):
            yield at, life_of(marker)
