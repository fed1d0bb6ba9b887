"""What a call cost, from its usage and dated prices."""

from __future__ import annotations

from ..layout.rules import Price
from ..types import Usage

_MILLION = 1_000_000


def cost_usd(usage: Usage, price: Price) -> float | None:
    """Return the price of a call in US dollars, None where its tokens are not known.

    A token that was read or written is billed at its own price where the provider has one, else
    as any input token.
    """
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    read, long = usage.cached_tokens or 0, usage.cache_write_1h_tokens or 0
    short = (usage.cache_write_tokens or 0) - long
    plain = usage.input_tokens - read - short - long
    return (
        plain * price.input
        + read * _or(price.read, price.input)
        + short * _or(price.write, price.input)
        + long * _or(price.write_1h, _or(price.write, price.input))
        + usage.output_tokens * price.output
    ) / _MILLION


def _or(value: float | None, fallback: float) -> float:
    return fallback if value is None else value
