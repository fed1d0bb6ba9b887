"""The caller's own cache markers in LangChain's messages and tools, and what they leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage

from ragcache.layout.markers import (
    AHEAD,
    BEHIND,
    MIN_CHARS,
    Life,
    Mode,
    Room,
    life_of,
    marks,
    planned,
    room_left,
)


def room(messages: Sequence[BaseMessage], arguments: Mapping[str, Any], *, at: int) -> Room:
    """Return what is left for markers in message `at`."""
    return room_left(_callers(messages, arguments), at=at)


def _callers(
    messages: Sequence[BaseMessage], arguments: Mapping[str, Any]
) -> Iterator[tuple[int, Life]]:
    """Yield place and lifetime of each marker that the caller set, in the provider's order."""
    for tool in arguments.get("tools") or ():
        if isinstance(tool, Mapping) and tool.get("cache_control"):
            yield AHEAD, life_of(tool["cache_control"])
    for at, message in enumerate(messages):
        # System messages come before all others, wherever they stand in the list.
        place = AHEAD if isinstance(message, SystemMessage) else at
        if isinstance(message.content, str):
            continue
        for part in message.content:
            if isinstance(part, Mapping) and part.get("cache_control"):
                yield place, life_of(part["cache_control"])
    if arguments.get("cache_control"):
        yield BEHIND, life_of(arguments["cache_control"])


__all__ = ["MIN_CHARS", "Mode", "Room", "marks", "planned", "room"]
