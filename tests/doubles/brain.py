"""An OpenAI-compatible model that does what it is told: calls tools, fills schemas, stops."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from .upstream import KNOWN_FIELDS, Reply, Upstream, _event


def think(body: dict[str, Any]) -> Reply:
    """Answer a body as a capable model would, deterministically."""
    tools = [t["function"] for t in body.get("tools") or []]
    choice = body.get("tool_choice") or "auto"
    answered = any(m["role"] == "tool" for m in body["messages"])
    if tools and choice != "none" and (not answered or choice not in ("auto", "none")):
        named = choice["function"]["name"] if isinstance(choice, dict) else tools[0]["name"]
        tool = next(t for t in tools if t["name"] == named)
        call = {"name": tool["name"], "arguments": json.dumps(fill(tool.get("parameters") or {}))}
        calls = [{"id": "call_1", "type": "function", "function": call}]
        return Reply(text="", finish_reason="tool_calls", tool_calls=calls)
    form = (body.get("response_format") or {}).get("type")
    if form == "json_schema":
        return Reply(text=json.dumps(fill(body["response_format"]["json_schema"]["schema"])))
    if form == "json_object":
        return Reply(text=json.dumps({"setup": "Why?", "punchline": "Because."}))
    return Reply(text=_spoken(body), pieces=["The", " fee", " is", " 80", " per", " day", "."])


def _spoken(body: dict[str, Any]) -> str:
    stop = body.get("stop")
    return "The fee is" if stop else "The fee is 80 per day."


def fill(schema: dict[str, Any], root: dict[str, Any] | None = None) -> Any:
    """Return a value that fits a JSON schema."""
    root = root or schema
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return fill(root["$defs"][name], root)
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return fill(schema[key][0], root)
    match schema.get("type"):
        case "object" | None:
            return {k: fill(v, root) for k, v in (schema.get("properties") or {}).items()}
        case "array":
            return [fill(schema.get("items") or {"type": "string"}, root)]
        case "integer":
            return 3
        case "number":
            return 80
        case "boolean":
            return True
        case "null":
            return None
    return "cats 你好 こんにちは"


class Brain(Upstream):
    """An upstream that thinks, and streams tool calls in pieces as the real one does."""

    def __init__(self, allowed: frozenset[str] = KNOWN_FIELDS) -> None:
        super().__init__(allowed)
        self.script = think

    async def _stream(self, reply: Reply) -> AsyncIterator[bytes]:
        name = json.dumps(self.bodies[-1]["model"]).encode()
        async for event in self._events(reply):
            yield event.replace(b'"model": "fake"', b'"model": ' + name)

    async def _events(self, reply: Reply) -> AsyncIterator[bytes]:
        if not reply.tool_calls:
            async for event in super()._stream(reply):
                yield event
            return
        for at, call in enumerate(reply.tool_calls):
            function = {"name": call["function"]["name"], "arguments": ""}
            first = {"index": at, "id": call["id"], "type": "function", "function": function}
            yield _event({"role": "assistant", "content": None, "tool_calls": [first]})
            arguments = call["function"]["arguments"]
            for start in range(0, len(arguments), 9):
                piece = {"index": at, "function": {"arguments": arguments[start : start + 9]}}
                yield _event({"tool_calls": [piece]})
        yield _event({}, finish=reply.finish_reason)
        yield _event(None, usage=reply.usage)
        yield b"data: [DONE]\n\n"
