"""Money: what a request cost, and what it saved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.errors import ConfigError
from ragcache.telemetry import savings
from ragcache.types import Usage

OWN = {"m": {"input": 2.0, "read": 0.5, "write": 2.5, "output": 8.0}}


def test_writing_to_a_prefix_cache_that_nobody_reads_saves_less_than_nothing():
    usage = Usage(input_tokens=1000, cached_tokens=0, cache_write_tokens=1000, output_tokens=0)
    assert savings.of_call(usage, savings.prices_of(OWN)("", "m")).saved == pytest.approx(-0.0005)


def test_unknown_token_counts_are_unknown_money():
    price = savings.prices_of(OWN)("", "m")
    assert savings.of_call(Usage(), price).saved is None
    assert savings.of_hit(Usage(), price).saved is None
    assert savings.of_hit(None, price).saved is None


def test_an_operators_own_price_goes_before_the_shipped_one():
    own = savings.prices_of({"gpt-4o": {"input": 1.0, "output": 1.0}})
    assert own("openai", "gpt-4o").input == 1.0
    assert savings.prices_of()("openai", "gpt-4o").input == 2.5
    assert savings.prices_of()("openai", "not-a-model") is None


@pytest.mark.parametrize("fields", [{"input": 1.0}, {"input": 1, "output": 1, "per": 2}])
def test_a_price_that_is_incomplete_or_misspelt_is_refused_by_name(fields):
    with pytest.raises(ConfigError, match=r"telemetry\.prices\.m"):
        savings.prices_of({"m": fields})


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_every_input_token_is_billed_exactly_once(read, written, fresh, output):
    """At one price for all kinds, the bill depends on the sum alone."""
    flat = savings.prices_of(
        {"m": {"input": 1.0, "read": 1.0, "write": 1.0, "write_1h": 1.0, "output": 1.0}}
    )("", "m")
    usage = Usage(
        input_tokens=read + written + fresh,
        cached_tokens=read,
        cache_write_tokens=written,
        output_tokens=output,
    )
    money = savings.of_call(usage, flat)
    assert money.cost == pytest.approx((read + written + fresh + output) / 1e6)
    assert money.saved == pytest.approx(0.0)
