"""One usage schema: every provider's way of counting adds up, and missing is unknown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.providers import cost_usd
from ragcache.targets.usage import usage_of
from ragcache.types import UNKNOWN_USAGE, Usage

SUBSET = {"prompt_tokens": 6000, "completion_tokens": 250, "total_tokens": 6250}
EXPECTED = Usage(input_tokens=6000, cached_tokens=4096, output_tokens=250)
FORMS: dict[str, tuple[dict[str, Any], Usage]] = {
    "openai": (
        SUBSET
        | {
            "prompt_tokens_details": {"cached_tokens": 4096, "cache_write_tokens": 1000},
            "completion_tokens_details": {"reasoning_tokens": 64},
        },
        Usage(
            input_tokens=6000,
            cached_tokens=4096,
            cache_write_tokens=1000,
            output_tokens=250,
            reasoning_tokens=64,
        ),
    ),
    "openai responses": (
        {
            "input_tokens": 6000,
            "output_tokens": 250,
            "total_tokens": 6250,
            "input_tokens_details": {"cached_tokens": 4096},
        },
        EXPECTED,
    ),
    "anthropic": (
        {
            "input_tokens": 120,
            "cache_read_input_tokens": 5000,
            "cache_creation_input_tokens": 880,
            "cache_creation": {"ephemeral_5m_input_tokens": 600, "ephemeral_1h_input_tokens": 280},
            "output_tokens": 250,
        },
        Usage(
            input_tokens=6000,
            cached_tokens=5000,
            cache_write_tokens=880,
            cache_write_1h_tokens=280,
            output_tokens=250,
        ),
    ),
    "bedrock": (
        {
            "inputTokens": 120,
            "cacheReadInputTokens": 5000,
            "cacheWriteInputTokens": 880,
            "cacheDetails": [{"ttl": "1h", "inputTokens": 280}, {"ttl": "5m", "inputTokens": 600}],
            "outputTokens": 250,
            "totalTokens": 6250,
        },
        Usage(
            input_tokens=6000,
            cached_tokens=5000,
            cache_write_tokens=880,
            cache_write_1h_tokens=280,
            output_tokens=250,
        ),
    ),
    "deepseek": (
        SUBSET | {"prompt_cache_hit_tokens": 4096, "prompt_cache_miss_tokens": 1904},
        EXPECTED,
    ),
    "gemini": (
        {
            "promptTokenCount": 6000,
            "cachedContentTokenCount": 4096,
            "candidatesTokenCount": 200,
            "thoughtsTokenCount": 50,
            "totalTokenCount": 6250,
        },
        Usage(input_tokens=6000, cached_tokens=4096, output_tokens=250, reasoning_tokens=50),
    ),
    "gemini in python": (
        {
            "prompt_token_count": 6000,
            "cached_content_token_count": 4096,
            "candidates_token_count": 250,
        },
        EXPECTED,
    ),
    "qwen": (
        SUBSET
        | {
            "prompt_tokens_details": {
                "cached_tokens": 4096,
                "cache_creation_input_tokens": 1024,
                "cache_creation": {"ephemeral_5m_input_tokens": 1024},
                "cache_type": "ephemeral",
            }
        },
        Usage(
            input_tokens=6000, cached_tokens=4096, cache_write_tokens=1024, output_tokens=250
        ),
    ),
    "kimi": (SUBSET | {"cached_tokens": 4096}, EXPECTED),
    "vllm": (
        SUBSET | {"prompt_tokens_details": {"cached_tokens": 4096, "created_cache_tokens": 1888}},
        Usage(
            input_tokens=6000, cached_tokens=4096, cache_write_tokens=1888, output_tokens=250
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", FORMS)
def test_every_provider_is_read_into_the_same_schema(provider):
    body, expected = FORMS[provider]
    assert usage_of(body) == expected
    assert expected.total_tokens == 6250
    fresh = expected.fresh_tokens
    assert fresh is None or fresh >= 0


@pytest.mark.parametrize("provider", FORMS)
def test_what_a_provider_leaves_out_is_unknown_and_not_zero(provider):
    body, _ = FORMS[provider]
    plain = {k: v for k, v in body.items() if "ach" not in k and "details" not in k}
    found = usage_of(plain)
    assert found.cached_tokens is None
    assert found.cache_write_tokens is None
    assert found.fresh_tokens is None
    assert found.input_tokens in (6000, 120)


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"tokens": 3},
        {"prompt_tokens": None},
        {"prompt_tokens": "many"},
        {"prompt_tokens": -1},
    ],
)
def test_what_is_no_usage_is_unknown(body):
    assert usage_of(body) == UNKNOWN_USAGE
    assert usage_of(body).total_tokens is None


@pytest.mark.parametrize("details", ["0", ["1h", None, 5], {"ttl": "1h"}])
def test_details_of_another_shape_tell_nothing(details):
    plain = {"inputTokens": 7, "outputTokens": 2, "cacheWriteInputTokens": 3}
    found = usage_of(plain | {"cacheDetails": details})
    assert (found.input_tokens, found.cache_write_1h_tokens) == (10, None)


def test_zero_is_zero():
    found = usage_of(SUBSET | {"prompt_tokens_details": {"cached_tokens": 0}})
    assert found.cached_tokens == 0
    assert found.computed_tokens == 6000


COUNTS = st.one_of(st.none(), st.integers(-5, 10_000), st.booleans(), st.text(max_size=2))
NAMES = sorted({name for body, _ in FORMS.values() for name in body})
INNER = sorted(
    {
        inner
        for body, _ in FORMS.values()
        for v in body.values()
        if isinstance(v, dict)
        for inner in v
    }
)


@given(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.one_of(COUNTS, st.dictionaries(st.sampled_from(INNER), COUNTS, max_size=4)),
        max_size=8,
    )
)
def test_parts_never_exceed_their_whole_whatever_a_server_says(body):
    found = usage_of(body)
    known = [v for v in (getattr(found, n) for n in Usage.__slots__) if v is not None]
    assert all(v >= 0 for v in known)
    if found.input_tokens is not None:
        assert (found.cached_tokens or 0) + (found.cache_write_tokens or 0) <= found.input_tokens
    assert (found.cache_write_1h_tokens or 0) <= (found.cache_write_tokens or 0)
    if found.fresh_tokens is not None and found.cache_write_tokens is not None:
        parts = found.fresh_tokens + found.cached_tokens + found.cache_write_tokens
        assert parts == found.input_tokens
    if found.total_tokens is not None:
        assert found.total_tokens == found.input_tokens + found.output_tokens


def test_an_unknown_usage_costs_an_unknown_amount():
    from ragcache.providers import find_price

    assert cost_usd(UNKNOWN_USAGE, find_price("openai", "gpt-4o")) is None
