"""Dated rules and prices of providers. An unknown model gets no guess."""

from __future__ import annotations

from .loader import all_prices, all_rules, find_price, find_rules, parse, prices_in
from .money import cost_usd

__all__ = ["all_prices", "all_rules", "cost_usd", "find_price", "find_rules", "parse", "prices_in"]
