"""Prefix caches as simple as they can be, to measure the layout by something other than itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from ..layout.rules import CacheRules, Lifetime


class PrefixCache:
    """Sequences of blocks under LRU: the least recently used end of a sequence goes first.

    Args:
        capacity_tokens: None never evicts.
    """

    def __init__(self, capacity_tokens: int | None = None) -> None:
        self._capacity_tokens = capacity_tokens
        self._tokens = 0
        self._held: OrderedDict[tuple[Hashable, ...], int] = OrderedDict()

    def serve(self, sequence: Sequence[tuple[Hashable, int]]) -> int:
        """Return the tokens found, and hold the whole sequence."""
        prefixes = [tuple(key for key, _ in sequence[: at + 1]) for at in range(len(sequence))]
        found = 0
        for prefix, (_, tokens) in zip(prefixes, sequence, strict=True):
            if prefix not in self._held:
                break
            found += tokens
        for prefix, (_, tokens) in reversed(list(zip(prefixes, sequence, strict=True))):
            if prefix not in self._held:
                self._tokens += tokens
                self._held[prefix] = tokens
            self._held.move_to_end(prefix)
        while self._capacity_tokens is not None and self._tokens > self._capacity_tokens:
            self._tokens -= self._held.popitem(last=False)[1]
        return found


@dataclass(slots=True)
class Bill:
    """Input tokens, and what they cost in units of the input price."""

    tokens: int = 0
    cost: float = 0.0

    def add(
        self, total: int, *, read: int, written: int, rules: CacheRules, life: Lifetime
    ) -> None:
        """Add one request."""
        self.tokens += total
        self.cost += total - read - written + rules.read * read + life.write * written

    @property
    def relative(self) -> float:
        """Cost against the same tokens without any cache."""
        return self.cost / self.tokens if self.tokens else 1.0


@dataclass(slots=True)
class AutomaticCache:
    """A provider that finds prefixes by itself. Nothing expires.

    The longest known prefix counts; for providers that keep whole units, the longest prefix that
    was already shared by two earlier requests.
    """

    rules: CacheRules
    bill: Bill = field(default_factory=Bill)
    _seen: dict[tuple[Hashable, ...], bool] = field(default_factory=dict)

    def serve(self, sequence: Sequence[tuple[Hashable, int]], total: int) -> None:
        """Bill a request whose prefix is `sequence` and whose whole length is `total`."""
        tokens, found, last_known = 0, 0, None
        for at in range(len(sequence)):
            prefix = tuple(key for key, _ in sequence[: at + 1])
            tokens += sequence[at][1]
            if prefix not in self._seen:
                self._seen[prefix] = False
                continue
            last_known = prefix
            if self.rules.match != "units" or self._seen[prefix]:
                found = tokens
        if last_known is not None:
            self._seen[last_known] = True
        read = found - found % self.rules.step_tokens if found >= self.rules.min_tokens else 0
        self.bill.add(total, read=read, written=0, rules=self.rules, life=self.rules.lifetimes[0])


@dataclass(slots=True)
class MarkedCache:
    """A provider that finds only what was marked and written. Nothing expires unless told so."""

    rules: CacheRules
    life_requests: int | None = None
    bill: Bill = field(default_factory=Bill)
    _written: dict[tuple[Hashable, ...], int] = field(default_factory=dict)
    _requests: int = 0

    def serve(
        self, sequence: Sequence[tuple[Hashable, int]], marks: Sequence[int], total: int
    ) -> None:
        """Bill a request marked behind the pieces `marks` of its prefix."""
        self._requests += 1
        lengths, tokens = [], 0
        for _, more in sequence:
            tokens += more
            lengths.append(tokens)
        keys = [tuple(key for key, _ in sequence[: at + 1]) for at in range(len(sequence))]
        marks = [at for at in marks if lengths[at] >= self.rules.min_tokens]
        found = [at for mark in marks for at in self._searched(mark) if self._holds(keys[at])]
        read = max((lengths[at] for at in found), default=0)
        deepest = max((lengths[at] for at in marks), default=0)
        for at in (*marks, *found):
            self._written[keys[at]] = self._requests
        self.bill.add(
            total,
            read=read,
            written=max(0, deepest - read),
            rules=self.rules,
            life=self.rules.lifetimes[0],
        )

    def _searched(self, mark: int) -> range:
        return range(max(0, mark - self.rules.lookback + 1), mark + 1)

    def _holds(self, key: tuple[Hashable, ...]) -> bool:
        at = self._written.get(key)
        if at is None:
            return False
        return self.life_requests is None or self._requests - at <= self.life_requests
