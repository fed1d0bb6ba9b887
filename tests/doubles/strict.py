"""What strict hosts refuse, as pure checks of a body; "" where they accept it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Fields of the Chat Completions schema that any host knows.
KNOWN_FIELDS = frozenset(
    {
        "model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop",
        "seed", "n", "logit_bias", "logprobs", "top_logprobs", "presence_penalty",
        "frequency_penalty", "response_format", "tools", "tool_choice", "parallel_tool_calls",
        "stream", "stream_options", "user", "reasoning_effort", "metadata",
    }
)  # fmt: skip
OPENAI_FIELDS = KNOWN_FIELDS | {
    "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "service_tier", "store",
}  # fmt: skip
DEEPSEEK_FIELDS = KNOWN_FIELDS - {
    "max_completion_tokens", "seed", "n", "logit_bias", "parallel_tool_calls", "user",
    "reasoning_effort", "metadata",
}  # fmt: skip

_MESSAGE_FIELDS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "function_call"}
)
_PART_FIELDS = frozenset({"type", "text", "image_url", "input_audio", "file", "refusal"})
_TOOL_FIELDS = frozenset({"type", "function"})
_ROLES = frozenset({"system", "user", "assistant", "tool"})
_MARKS = frozenset({"cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint"})


def openai_fault(body: Mapping[str, Any]) -> str:
    """OpenAI: its own cache fields, `developer`, at most four breakpoints."""
    marks = sum(name == "prompt_cache_breakpoint" for name in _names(body))
    if marks > 4:
        return f"{marks} breakpoints"
    return host_fault(
        body,
        fields=OPENAI_FIELDS,
        roles=_ROLES | {"developer"},
        marks=frozenset({"prompt_cache_breakpoint"}),
    )


def deepseek_fault(body: Mapping[str, Any]) -> str:
    """DeepSeek: fewer fields, texts instead of content parts, no marks."""
    parts = [m["role"] for m in body["messages"] if not isinstance(m.get("content") or "", str)]
    if parts:
        return f"content of {parts} must be a string"
    return host_fault(body, fields=DEEPSEEK_FIELDS)


def host_fault(
    body: Mapping[str, Any],
    *,
    fields: frozenset[str] = KNOWN_FIELDS,
    roles: frozenset[str] = _ROLES,
    marks: frozenset[str] = frozenset(),
) -> str:
    """Any host: no field that is not in its schema, at any depth."""
    if unknown := set(body) - fields:
        return f"unknown fields: {sorted(unknown)}"
    for message in body["messages"]:
        if fault := _message_fault(message, roles, marks):
            return fault
    for tool in body.get("tools") or ():
        if unknown := set(tool) - _TOOL_FIELDS - marks:
            return f"unknown fields of a tool: {sorted(unknown)}"
    if forbidden := set(_names({k: v for k, v in body.items() if k != "tools"})) & (_MARKS - marks):
        return f"marks: {sorted(forbidden)}"
    return ""


def _message_fault(message: Mapping[str, Any], roles: frozenset[str], marks: frozenset[str]) -> str:
    if message.get("role") not in roles:
        return f"role {message.get('role')!r}"
    if unknown := set(message) - _MESSAGE_FIELDS:
        return f"unknown fields of a message: {sorted(unknown)}"
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if unknown := set(part) - _PART_FIELDS - marks:
            return f"unknown fields of a content part: {sorted(unknown)}"
    return ""


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield name
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)
