"""One cache key for requests that begin alike, and never more requests on it than it bears.

Providers route by such a key: requests with the same key land where their prefix is, until there
are too many (OpenAI: about 15 a minute; guide on prompt caching, read 2026-11-29). So the key
names the shortest prefix that is asked for rarely enough; one that is still too hot is spread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from ..keys import fingerprint
from ..types import Fingerprint
from .plan import Plan
from .rules import CacheRules

_MINUTE_S = 60.0


@dataclass(slots=True)
class _Rate:
    """Requests in this minute and the one before."""

    minute: int = -1
    count: int = 0
    before: int = 0

    def add(self, now_s: float) -> None:
        minute = int(now_s // _MINUTE_S)
        if minute != self.minute:
            self.before = self.count if minute == self.minute + 1 else 0
            self.minute, self.count = minute, 0
        self.count += 1

    def busiest(self) -> int:
        return max(self.count, self.before)


class Clusters:
    """How often each prefix is asked for, bounded.

    Args:
        max_prefixes: How many prefixes are counted, least recently used forgotten first.
    """

    def __init__(self, *, max_prefixes: int = 1000) -> None:
        self._max_prefixes = max_prefixes
        self._rates: OrderedDict[Fingerprint, _Rate] = OrderedDict()

    def key(self, plan: Plan, *, rules: CacheRules | None, salt: str, now_s: float) -> str | None:
        """Return the key of a request and count it; None where the provider takes none.

        Args:
            plan: Of the layout.
            rules: The provider's.
            salt: Tells trust groups apart; a secret of the operator's, so that a key names nobody.
            now_s: The clock, in seconds.
        """
        if rules is None or not rules.key_field:
            return None
        limit = rules.requests_per_key_minute
        path: list[Fingerprint] = []
        rate = _Rate()
        for step in (plan.head, *plan.steps):
            path.append(step.key)
            rate = self._count(salt, path, now_s)
            if limit is None or rate.busiest() <= limit:
                return fingerprint("prompt_cache_key", salt, path)[:32]
        shard = 0 if limit is None else (rate.count - 1) // limit
        return fingerprint("prompt_cache_key", salt, path, shard)[:32]

    def _count(self, salt: str, path: Sequence[Fingerprint], now_s: float) -> _Rate:
        name = fingerprint(salt, path)
        rate = self._rates.setdefault(name, _Rate())
        self._rates.move_to_end(name)
        while len(self._rates) > self._max_prefixes:
            self._rates.popitem(last=False)
        rate.add(now_s)
        return rate
