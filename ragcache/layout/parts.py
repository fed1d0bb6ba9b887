"""The prompt in content parts, one for each block, with marks on them.

A target that can be marked is always sent parts, marked or not: content that is a string on one
turn and a list on the next would change the bytes of a turn that did not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..types import Breakpoint, JsonObject, Layout, Message
from .plan import Plan
from .render import BLOCK_SEPARATOR
from .rules import CacheRules, Lifetime


def parted(layout: Layout) -> tuple[Message, ...]:
    """Return the messages with system and user texts as content parts, cut behind each block."""
    return tuple(
        _parted(index, message, layout) if message.role in ("system", "user") else message
        for index, message in enumerate(layout.messages)
    )


def marked(
    layout: Layout, breakpoints: Sequence[Breakpoint], rules: CacheRules
) -> tuple[tuple[Message, ...], tuple[JsonObject, ...]]:
    """Return messages in parts and tools, with the marks in the provider's own field.

    The caller's own marks stay where they are; a part is never marked twice.
    """
    messages, tools = list(parted(layout)), list(layout.tools)
    for mark in breakpoints:
        field = _mark(rules, mark)
        if not field:
            continue
        if mark.block < 0:
            _mark_head(messages, tools, field, rules)
            continue
        place = _place(layout, mark.block)
        if place is not None:
            index, part = place
            messages[index] = _with_mark(messages[index], part, field)
    return tuple(messages), tuple(tools)


def _parted(index: int, message: Message, layout: Layout) -> Message:
    if not isinstance(message.content, str) or not message.content:
        return message
    ends = [end for _, end in _ends(layout, index)]
    pieces, start = [], 0
    for end in [*ends, len(message.content)]:
        if end > start:
            pieces.append({"type": "text", "text": message.content[start:end]})
            start = end
    return replace(message, content=tuple(pieces))


def _ends(layout: Layout, index: int) -> list[tuple[int, int]]:
    """Return the blocks of a message and where each ends in it, its separator included."""
    plan, message = layout.plan, layout.messages[index]
    if not isinstance(plan, Plan) or not isinstance(message.content, str):
        return []
    found = []
    for block, (at, end) in enumerate(plan.cuts):
        if at == index:
            separated = message.content.startswith(BLOCK_SEPARATOR, end)
            found.append((block, end + len(BLOCK_SEPARATOR) if separated else end))
    return found


def _place(layout: Layout, block: int) -> tuple[int, int] | None:
    """Return the message and the part that hold a block."""
    if not isinstance(layout.plan, Plan) or block >= len(layout.plan.cuts):
        return None
    index, _ = layout.plan.cuts[block]
    ends = _ends(layout, index)
    part = next((at for at, (number, _) in enumerate(ends) if number == block), None)
    return None if part is None else (index, part)


def _mark(rules: CacheRules, mark: Breakpoint) -> dict[str, Any]:
    if rules.mark == "cache_control":
        life = _lifetime(rules, mark.ttl_s)
        ttl = {"ttl": life.name} if life is not rules.lifetimes[0] and life.name else {}
        return {"cache_control": {"type": "ephemeral", **ttl}}
    if rules.mark == "prompt_cache_breakpoint":
        return {"prompt_cache_breakpoint": {"mode": "explicit"}}
    return {}


def _lifetime(rules: CacheRules, ttl_s: int | None) -> Lifetime:
    same = [life for life in rules.lifetimes if life.seconds == ttl_s]
    return same[0] if same and ttl_s is not None else rules.lifetimes[0]


def _with_mark(message: Message, part: int, field: Mapping[str, Any]) -> Message:
    parts = list(message.content)
    if part >= len(parts) or not isinstance(parts[part], Mapping):
        return message
    held = parts[part]
    if any(name in held for name in field):
        return message
    parts[part] = {**held, **field}  # type: ignore[dict-item]  # parts are mappings, as just seen
    return replace(message, content=tuple(parts))  # type: ignore[arg-type]  # as above


def _mark_head(
    messages: list[Message], tools: list[JsonObject], field: Mapping[str, Any], rules: CacheRules
) -> None:
    """Mark behind the system message, or behind the tools where there is none."""
    systems = [at for at, message in enumerate(messages) if message.role == "system"]
    if systems and messages[systems[0]].content:
        last = len(messages[systems[0]].content) - 1
        messages[systems[0]] = _with_mark(messages[systems[0]], last, field)
    elif tools and rules.mark == "cache_control" and "cache_control" not in tools[-1]:
        tools[-1] = {**tools[-1], **field}
