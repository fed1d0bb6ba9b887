"""Reads the rules and prices that ship with the package."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ConfigError
from ..layout.rules import CacheRules, Lifetime, Price

T = TypeVar("T", CacheRules, Price)

_RULE_FIELDS = frozenset(CacheRules.__dataclass_fields__)
_PRICE_FIELDS = frozenset(Price.__dataclass_fields__)


@cache
def _shipped() -> tuple[tuple[CacheRules, ...], tuple[Price, ...]]:
    rules: list[CacheRules] = []
    prices: list[Price] = []
    files = sorted(resources.files(__package__).iterdir(), key=lambda file: file.name)
    for file in files:
        if file.name.endswith(".toml"):
            more_rules, more_prices = parse(file.read_text(encoding="utf-8"), name=file.name)
            rules.extend(more_rules)
            prices.extend(more_prices)
    return tuple(rules), tuple(prices)


def all_rules() -> tuple[CacheRules, ...]:
    """Return the rules of every provider."""
    return _shipped()[0]


def all_prices() -> tuple[Price, ...]:
    """Return the prices of every provider."""
    return _shipped()[1]


def find_rules(provider: str, model: str) -> CacheRules | None:
    """Return the rules of a model, None where it is not listed: then nothing is marked."""
    return _first(all_rules(), provider, model)


def find_price(provider: str, model: str) -> Price | None:
    """Return the prices of a model, None where it is not listed: then no money is reported."""
    return _first(all_prices(), provider, model)


def prices_in(path: Path) -> tuple[Price, ...]:
    """Return the prices of a file of the operator's own, in the form of those that are shipped.

    One file may hold several providers: an entry may name its own.

    Raises:
        ConfigError: The file cannot be read, or a field is missing, unknown or no number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"price file {path} cannot be read: {error.strerror}") from error
    return parse(text, name=str(path))[1]


def price_in(prices: Sequence[Price], provider: str, model: str) -> Price | None:
    """Return the first price of a model among these."""
    return _first(prices, provider, model)


def _first(entries: Sequence[T], provider: str, model: str) -> T | None:
    wanted = provider.lower()
    plain = model.lower().removeprefix(f"{wanted}/")
    return next((e for e in entries if e.provider == wanted and e.fits(plain)), None)


def parse(text: str, *, name: str = "rules") -> tuple[tuple[CacheRules, ...], tuple[Price, ...]]:
    """Return the rules and prices of one file.

    Raises:
        ConfigError: The file is not TOML, or a field is missing or unknown.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error
    provider = data.get("provider", "")
    if not (data.get("rules") or data.get("prices")):
        _required(data, "provider", name)
    rules = [_rules(entry, provider, name) for entry in data.get("rules", ())]
    prices = [_price(entry, provider, data, name) for entry in data.get("prices", ())]
    return tuple(rules), tuple(prices)


def _rules(entry: Mapping[str, Any], provider: str, name: str) -> CacheRules:
    _known(entry, _RULE_FIELDS, name)
    values = dict(entry)
    values["models"] = tuple(_required(entry, "models", name))
    values["lifetimes"] = tuple(Lifetime(**life) for life in _required(entry, "lifetimes", name))
    values["checked"] = _dated(entry, name)
    for field in ("name", "match", "read", "source"):
        _required(entry, field, name)
    return CacheRules(**{"provider": _required({"provider": provider}, "provider", name), **values})


def _price(entry: Mapping[str, Any], provider: str, file: Mapping[str, Any], name: str) -> Price:
    _known(entry, _PRICE_FIELDS, name)
    shared = {"source": file.get("prices_source"), "checked": file.get("prices_checked")}
    values = {"provider": provider, **shared, **entry}
    values["models"] = tuple(_required(entry, "models", name))
    values["checked"] = _dated(values, name)
    for field in ("provider", "input", "output", "source"):
        _required(values, field, name)
    for field in ("input", "output", "read", "write", "write_1h"):
        if not isinstance(values.get(field, 0.0), int | float):
            raise ConfigError(f"{name}: {field!r} of {values['models'][0]!r} is no number")
    return Price(**values)


def _required(entry: Mapping[str, Any], field: str, name: str) -> Any:
    if entry.get(field) in (None, "", []):
        raise ConfigError(f"{name}: {field!r} is missing in {entry.get('name', 'an entry')!r}")
    return entry[field]


def _dated(entry: Mapping[str, Any], name: str) -> date:
    checked = _required(entry, "checked", name)
    if not isinstance(checked, date):
        raise ConfigError(f"{name}: 'checked' must be a date, such as 2026-11-29")
    return checked


def _known(entry: Mapping[str, Any], fields: frozenset[str], name: str) -> None:
    unknown = sorted(set(entry) - fields)
    if unknown:
        raise ConfigError(
            f"{name}: unknown field {unknown[0]!r} in {entry.get('name', 'a price')!r}"
        )
