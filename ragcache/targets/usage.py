"""One usage schema, whatever the provider: missing is unknown, not zero; totals add up.

Three ways of counting are in use. *Subset*: the prompt's count includes what was read from and
written to the cache (OpenAI, DeepSeek, Gemini, Qwen, Kimi, Mistral, vLLM). *Additive*: it does
not (Anthropic, Bedrock). And output that counts its reasoning, or not (Gemini).

Sources, all checked 2026-11: OpenAI API reference (`usage`), Anthropic API reference (`Usage`),
Amazon Bedrock API reference (`TokenUsage`, `CacheDetail`), DeepSeek guide on context caching,
Gemini API reference (`UsageMetadata`), Alibaba Cloud Model Studio on context cache, Moonshot API
reference (`usage.cached_tokens`), vLLM 0.32 (`entrypoints/serve/engine/protocol.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..types import UNKNOWN_USAGE, Usage

_Counts = Mapping[str, Any]


def usage_of(usage: _Counts | None) -> Usage:
    """Read a usage by the names of its fields; what has none of a known provider's is unknown."""
    if not isinstance(usage, Mapping):
        return UNKNOWN_USAGE
    if "inputTokens" in usage:
        return bedrock_usage(usage)
    if "promptTokenCount" in usage or "prompt_token_count" in usage:
        return gemini_usage(usage)
    if "prompt_tokens" in usage:
        return openai_usage(usage)
    if "input_tokens_details" in usage or "total_tokens" in usage:
        return responses_usage(usage)
    return anthropic_usage(usage) if "input_tokens" in usage else UNKNOWN_USAGE


def openai_usage(usage: _Counts | None) -> Usage:
    """Read a Chat Completions usage, and those that only name the cached part otherwise.

    DeepSeek: `prompt_cache_hit_tokens`. Kimi: `cached_tokens` beside the prompt's count. Qwen:
    `cache_creation_input_tokens` among the details. vLLM: `created_cache_tokens` there, which
    costs nothing.
    """
    if not usage:
        return UNKNOWN_USAGE
    details = _inner(usage, "prompt_tokens_details")
    creation = _inner(details, "cache_creation")
    return _consistent(
        input_tokens=_count(usage, "prompt_tokens"),
        cached=_first(
            _count(details, "cached_tokens"),
            _count(usage, "prompt_cache_hit_tokens"),
            _count(usage, "cached_tokens"),
        ),
        written=_first(
            _count(details, "cache_write_tokens"),
            _count(details, "cache_creation_input_tokens"),
            _count(creation, "ephemeral_5m_input_tokens"),
            _count(details, "created_cache_tokens"),
        ),
        written_1h=_count(creation, "ephemeral_1h_input_tokens"),
        output=_count(usage, "completion_tokens"),
        reasoning=_count(_inner(usage, "completion_tokens_details"), "reasoning_tokens"),
    )


def responses_usage(usage: _Counts) -> Usage:
    """Read a usage of OpenAI's Responses API: as Chat Completions, under other names."""
    details = _inner(usage, "input_tokens_details")
    return _consistent(
        input_tokens=_count(usage, "input_tokens"),
        cached=_count(details, "cached_tokens"),
        written=_count(details, "cache_write_tokens"),
        output=_count(usage, "output_tokens"),
        reasoning=_count(_inner(usage, "output_tokens_details"), "reasoning_tokens"),
    )


def anthropic_usage(usage: _Counts) -> Usage:
    """Read an Anthropic usage: `input_tokens` counts neither reads nor writes of the cache."""
    creation = _inner(usage, "cache_creation")
    long = _count(creation, "ephemeral_1h_input_tokens")
    written = _first(
        _count(usage, "cache_creation_input_tokens"),
        _sum(_count(creation, "ephemeral_5m_input_tokens"), long),
    )
    return _additive(
        fresh=_count(usage, "input_tokens"),
        cached=_count(usage, "cache_read_input_tokens"),
        written=written,
        written_1h=long,
        output=_count(usage, "output_tokens"),
    )


def bedrock_usage(usage: _Counts) -> Usage:
    """Read a usage of Bedrock's Converse API: additive, its writes also by lifetime."""
    details = usage.get("cacheDetails")
    told = details if isinstance(details, (list, tuple)) else ()
    lives = [detail for detail in told if isinstance(detail, Mapping)]
    long = [_count(d, "inputTokens") for d in lives if d.get("ttl") == "1h"]
    return _additive(
        fresh=_count(usage, "inputTokens"),
        cached=_count(usage, "cacheReadInputTokens"),
        written=_count(usage, "cacheWriteInputTokens"),
        written_1h=_sum(*long) if long else (0 if lives else None),
        output=_count(usage, "outputTokens"),
    )


def gemini_usage(usage: _Counts) -> Usage:
    """Read a Gemini usage: its candidates' count leaves out the thoughts, which are output too."""
    thoughts = _either(usage, "thoughtsTokenCount")
    return _consistent(
        input_tokens=_sum(
            _either(usage, "promptTokenCount"), _either(usage, "toolUsePromptTokenCount")
        ),
        cached=_either(usage, "cachedContentTokenCount"),
        output=_sum(_either(usage, "candidatesTokenCount"), thoughts),
        reasoning=thoughts,
    )


# --- counts ------------------------------------------------------------------------------------


def _additive(*, fresh: int | None, cached: int | None, written: int | None, **rest: Any) -> Usage:
    total = None if fresh is None else fresh + (cached or 0) + (written or 0)
    return _consistent(input_tokens=total, cached=cached, written=written, **rest)


def _consistent(
    *,
    input_tokens: int | None,
    cached: int | None = None,
    written: int | None = None,
    written_1h: int | None = None,
    output: int | None = None,
    reasoning: int | None = None,
) -> Usage:
    """Return a usage whose parts never exceed their whole, whatever a server says."""
    cached = _at_most(cached, input_tokens)
    written = _at_most(written, None if input_tokens is None else input_tokens - (cached or 0))
    return Usage(
        input_tokens=input_tokens,
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=_at_most(written_1h, written or 0),
        output_tokens=output,
        reasoning_tokens=_at_most(reasoning, output),
    )


def _at_most(count: int | None, whole: int | None) -> int | None:
    return count if count is None or whole is None else min(count, whole)


def _count(counts: _Counts, name: str) -> int | None:
    """Return a count, None where it is missing or no count at all."""
    value = counts.get(name)
    return value if isinstance(value, int) and value is not True and value >= 0 else None


def _either(counts: _Counts, name: str) -> int | None:
    """Return a count in the spelling of JSON or of Python: `fooBar`, `foo_bar`."""
    snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
    return _first(_count(counts, name), _count(counts, snake))


def _inner(counts: _Counts, name: str) -> _Counts:
    found = counts.get(name)
    return found if isinstance(found, Mapping) else {}


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
