"""What a provider's prompt cache does, as data: where it matches, what it costs, how long it lasts.

The values are dated facts about somebody else's product; they live in `ragcache/providers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Literal

#: marks: only at places that were marked. prefix: the longest common prefix, by itself.
#: units: only whole stored prefixes, found by themselves. engine: whole KV blocks.
Match = Literal["marks", "prefix", "units", "engine"]
MarkField = Literal["cache_control", "cache_point", "prompt_cache_breakpoint", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """How long an entry is kept, and what writing it costs.

    Args:
        seconds: None where the provider promises nothing.
        write: Price of a written token as a multiple of the input price.
        name: As the provider spells it in the request, empty for its default.
    """

    seconds: int | None = None
    write: float = 1.0
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """The rules of one family of models.

    Args:
        name: Name of the rules, for reports.
        provider: Whose they are.
        models: Patterns of model names, lower case.
        match: What can be found again.
        read: Price of a cached token as a multiple of the input price.
        lifetimes: Shortest first; the first is the default.
        min_tokens: A shorter prefix is not cached.
        step_tokens: Matches are rounded down to a multiple of this.
        max_marks: Marks one request may carry, the caller's own included.
        lookback: How many content blocks before a mark are searched; 1 finds exactly the mark.
        mark: The field that carries a mark.
        implicit: The provider sets a mark of its own unless told not to.
        key_field: The field that keeps requests with a common prefix together.
        requests_per_key_minute: Above this rate a key's requests are spread.
        refreshed: A read starts the lifetime anew.
        source: Where this was read.
        checked: When.
    """

    name: str
    provider: str
    models: tuple[str, ...]
    match: Match
    read: float
    lifetimes: tuple[Lifetime, ...]
    min_tokens: int = 0
    step_tokens: int = 1
    max_marks: int = 0
    lookback: int = 1
    mark: MarkField = ""
    implicit: bool = False
    key_field: str = ""
    requests_per_key_minute: int | None = None
    refreshed: bool = True
    source: str
    checked: date

    @property
    def marked(self) -> bool:
        """Whether marks are worth planning."""
        return self.match == "marks" and self.max_marks > 0

    def fits(self, model: str) -> bool:
        """Return whether these are the rules of a model."""
        return any(fnmatchcase(model.lower(), pattern) for pattern in self.models)

    def lifetime(self, seconds: int | None = None) -> Lifetime:
        """Return the shortest lifetime of at least `seconds`, the default for None."""
        if seconds is None:
            return self.lifetimes[0]
        long_enough = [life for life in self.lifetimes if (life.seconds or 0) >= seconds]
        return long_enough[0] if long_enough else self.lifetimes[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices of one family of models, in US dollars for a million tokens."""

    provider: str
    models: tuple[str, ...]
    input: float
    output: float
    read: float | None = None
    write: float | None = None
    write_1h: float | None = None
    source: str
    checked: date

    def fits(self, model: str) -> bool:
        """Return whether these are the prices of a model."""
        return any(fnmatchcase(model.lower(), pattern) for pattern in self.models)
