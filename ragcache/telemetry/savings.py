"""What requests cost and what they saved, in US dollars. Unknown is None, never zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..layout.rules import Price
from ..providers.loader import all_prices, price_in, prices_in
from ..providers.money import cost_usd
from ..types import Usage

#: The price of a model at a provider; None where nobody has said.
PriceOf = Callable[[str, str], Price | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """The money of one request.

    Args:
        cost: What was paid: for a call its price, for a hit that of embedding the question.
        uncached: What would have been paid with neither cache.
        saved: The difference; negative where writing to a prefix cache cost more than it gave.
    """

    cost: float | None = None
    uncached: float | None = None

    @property
    def saved(self) -> float | None:
        """Return what was saved."""
        if self.cost is None or self.uncached is None:
            return None
        return self.uncached - self.cost


UNKNOWN = Money()


def of_call(usage: Usage, price: Price | None) -> Money:
    """Return the money of a call to the target, whose prefix may have been cached there."""
    if price is None:
        return UNKNOWN
    return Money(cost=cost_usd(usage, price), uncached=cost_usd(_without_cache(usage), price))


def of_hit(spared: Usage | None, price: Price | None, *, embedding: float = 0.0) -> Money:
    """Return the money of an answer that needed no call.

    Args:
        spared: The usage of the call that made the answer.
        price: Of the model that made it.
        embedding: Price of embedding the question.
    """
    if spared is None or price is None:
        return UNKNOWN
    return Money(cost=embedding, uncached=cost_usd(spared, price))


def _without_cache(usage: Usage) -> Usage:
    return replace(usage, cached_tokens=0, cache_write_tokens=0, cache_write_1h_tokens=0)


# --- prices ------------------------------------------------------------------------------------


def prices_of(
    own: Mapping[str, Mapping[str, Any]] | None = None, *, file: Path | None = None
) -> PriceOf:
    """Return what finds prices: the operator's own, by model name, before the shipped ones.

    Args:
        own: For a model `input` and `output`, where it has them `read`, `write`, `write_1h`, all
            in US dollars for a million tokens.
        file: Prices in the form of the shipped ones, in whose place they stand: a model that the
            file does not list has no price.

    Raises:
        ConfigError: A price is incomplete or has an unknown field.
    """
    known = {model.lower(): _own_price(model, fields) for model, fields in (own or {}).items()}
    listed = all_prices() if file is None else prices_in(file)

    @lru_cache(maxsize=256)
    def price(provider: str, model: str) -> Price | None:
        return known.get(model.lower()) or price_in(listed, provider, model)

    return price


def _own_price(model: str, fields: Mapping[str, Any]) -> Price:
    try:
        return Price(
            provider="",
            models=(model,),
            source="settings",
            checked=date.min,
            **{name: float(value) for name, value in fields.items()},
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"telemetry.prices.{model}: {error}; give input and output, and where the model has "
            "them read, write and write_1h, in US dollars for a million tokens"
        ) from error
