"""One usage schema, whatever the provider: missing is unknown, not zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..types import Usage


def openai_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Read a Chat Completions usage: cached tokens are a subset of the prompt tokens.

    Source: OpenAI API reference, `usage.prompt_tokens_details` (checked 2026-11).
    """
    if not usage:
        return Usage()
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=usage.get("prompt_tokens"),
        cached_tokens=prompt.get("cached_tokens"),
        cache_write_tokens=prompt.get("cache_write_tokens"),
        output_tokens=usage.get("completion_tokens"),
        reasoning_tokens=completion.get("reasoning_tokens"),
    )
