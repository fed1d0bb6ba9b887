"""Tools in one order and one spelling, whatever order they were gathered in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..keys import canonical_json
from ..types import JsonObject

#: Fields with which a caller marks a cache breakpoint on a tool itself, never inside its schema.
_MARKERS = ("cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint")


def canonical_tools(tools: Sequence[JsonObject]) -> tuple[JsonObject, ...]:
    """Return tools sorted by name, schema keys sorted, `required` sorted.

    The order of every other list (enum, oneOf, anyOf, prefixItems) means something and is kept.
    Where the caller marked a tool, the order of the tools is the caller's too: the mark says
    where a prefix ends.
    """
    canonical = [_canonical(tool) for tool in tools]
    if any(is_marked(tool) for tool in tools):
        return tuple(canonical)
    return tuple(sorted(canonical, key=lambda tool: (tool_name(tool), canonical_json(tool))))


def tool_name(tool: JsonObject) -> str:
    """Return the name of a tool in the OpenAI or the Anthropic form."""
    function = tool.get("function")
    if isinstance(function, Mapping):
        return str(function.get("name", ""))
    return str(tool.get("name", ""))


def is_marked(tool: JsonObject) -> bool:
    """Return whether the caller put a cache marker on this tool."""
    function = tool.get("function")
    places = (tool, function) if isinstance(function, Mapping) else (tool,)
    return any(marker in place for place in places for marker in _MARKERS)


def _canonical(value: Any, key: str = "", *, names: bool = False) -> Any:
    """Sort keys; sort `required` where it is the keyword, not a property of that name."""
    if isinstance(value, Mapping):
        inner = key in ("properties", "patternProperties", "$defs", "definitions") and not names
        return {str(k): _canonical(value[k], str(k), names=inner) for k in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        plain = [_canonical(item) for item in value]
        is_set = key == "required" and not names and all(isinstance(v, str) for v in plain)
        return sorted(plain) if is_set else plain
    return value
