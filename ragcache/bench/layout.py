"""What a layout reuses on a trace, and what that saves at each provider."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..layout import GroupTree, LayoutPolicy, PrefixForest, arrange, plan_breakpoints, schedule
from ..layout.blocks import make_blocks
from ..layout.breakpoints import MarkPlan
from ..layout.ordering import Item
from ..layout.plan import quarter_of_characters
from ..layout.policy import Ordering
from ..layout.render import BLOCK_SEPARATOR
from ..layout.rules import CacheRules, Lifetime
from ..providers import all_rules
from ..types import Fingerprint, Layout
from .simulation import AutomaticCache, MarkedCache, PrefixCache
from .trace import Trace, read_trace

#: Share of the trace's document tokens that the bounded cache holds.
_BOUNDED = 0.1
#: Tokens of the system prompt, in the cost only.
_SYSTEM_TOKENS = 600
_GROUP = "bench"
#: Texts whose tokens a replay remembers: a block is counted once, as a server's own cache would.
_COUNTED = 100_000


@dataclass(slots=True)
class _Pass:
    """One replay of a trace: what was printed where, and how long that took.

    The layout waits for nothing, so its own processor time is what a request waits for it; a
    clock on the wall would time whatever else the machine does. No layout is kept: what is kept
    is walked by the garbage collection, whose time counts as a request's.
    """

    printed: list[tuple[Hashable, ...]] = field(default_factory=list)
    #: Of every block of a document, as the trace counts them.
    tokens: dict[Hashable, int] = field(default_factory=dict)
    #: Of every block, as it was printed.
    texts: dict[Hashable, str] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    moved: int = 0
    blocks: int = 0

    def add(self, number: int, layout: Layout, trace: Trace, seconds: float) -> None:
        ids = trace.requests[number][1]
        self.numbers.append(number)
        self.seconds.append(seconds)
        self.texts.update((block.hash, block.text) for block in layout.blocks)
        self.tokens.update((b.hash, trace.tokens[ids[b.rank]]) for b in layout.blocks)
        self.printed.append(tuple([block.hash for block in layout.blocks]))
        self.moved += sum(abs(at - block.rank) for at, block in enumerate(layout.blocks))
        self.blocks += len(layout.blocks)

    @property
    def sequences(self) -> Iterator[list[tuple[Hashable, int]]]:
        """The blocks of each request in the order of its prompt, with their tokens."""
        return ([(key, self.tokens[key]) for key in keys] for keys in self.printed)


def replay(
    docs: Path | str,
    trace: Path | str,
    *,
    policy: Ordering = "prefix_tree",
    k: int | None = None,
    batch: bool = False,
    limit: int | None = None,
    shuffle: int | None = None,
    tokenizer: Callable[[str], int] | None = None,
    pin_top: int = 0,
    max_displacement: int | None = None,
    block_size: int | None = None,
    align_blocks: bool = False,
    rules: Sequence[CacheRules] | None = None,
) -> dict[str, Any]:
    """Replay a trace and return what was reused, as plain data.

    Args:
        docs: Documents, JSONL of `{"id", "text"}`.
        trace: Requests, JSONL of `{"query", "ids", ...}`.
        policy: How the blocks are ordered.
        k: Cuts each request to its first k documents.
        batch: Orders the whole trace at once.
        limit: Cuts the trace to its first requests.
        shuffle: Seed of a shuffle; file order for None.
        tokenizer: Counts the tokens of a text; a quarter of its characters for None.
        pin_top: So many best-ranked blocks stand last.
        max_displacement: No block stands further than this from its rank.
        block_size: Tokens of an engine's KV block: then what it computes is told too.
        align_blocks: Each block is padded to whole KV blocks.
        rules: Providers whose cost is reported; all that are known for None.

    Raises:
        ConfigError: A file cannot be read.
    """
    count = lru_cache(maxsize=_COUNTED)(tokenizer) if tokenizer else quarter_of_characters
    read = read_trace(docs, trace, count=count, k=k, limit=limit, shuffle=shuffle)
    chosen = LayoutPolicy(
        ordering=policy,
        pin_top=pin_top,
        max_displacement=max_displacement,
        min_prefix_tokens=0,
        block_size=block_size,
        align_blocks=align_blocks,
    )
    bench = Bench(read, chosen, count, batch=batch)
    free = bench.run(_forest(read, None))
    bounded = bench.run(_forest(read, bench.capacity_tokens(_BOUNDED)))
    wanted = all_rules() if rules is None else tuple(rules)
    result = {
        "policy": policy,
        "k": read.k if k is None else k,
        "batch": batch,
        "requests": len(read.requests),
        "hit_rate": bench.hit_rate(free, None),
        "hit_rate_bounded": bench.hit_rate(bounded, int(read.document_tokens * _BOUNDED)),
        "displacement": free.moved / free.blocks if free.blocks else 0.0,
        "ms": _milliseconds(free.seconds),
        "relative_cost": bench.costs(free, wanted),
    }
    if block_size is not None:
        result["computed"] = bench.computed(free, block_size)
    return result


def _forest(trace: Trace, max_tokens: int | None) -> PrefixForest:
    return PrefixForest(
        max_entries=max(1, len(trace.requests)),
        max_tokens=max_tokens,
        max_blocks_per_entry=max(1, trace.k + 1),
    )


def _milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"mean": 0.0, "p50": 0.0, "p99": 0.0}
    ordered = sorted(seconds)
    return {
        "mean": 1000 * sum(ordered) / len(ordered),
        "p50": 1000 * ordered[len(ordered) // 2],
        "p99": 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
    }


class Bench:
    """A trace, a policy and a way to count: what every pass shares."""

    def __init__(
        self, trace: Trace, policy: LayoutPolicy, count: Callable[[str], int], *, batch: bool
    ) -> None:
        self._trace = trace
        self._policy = policy
        self._count = count
        self._scheduling_s = 0.0
        self._schedule = self._scheduled() if batch else None

    def capacity_tokens(self, share: float) -> int:
        """Return a share of the trace in tokens of blocks: marks around a document included."""
        blocks = make_blocks(tuple(self._trace.documents.values()), policy=self._policy)
        printed = sum(self._count(block.text) for block in blocks)
        plain = sum(self._trace.tokens.values()) or 1
        return int(share * self._trace.document_tokens * printed / plain)

    def run(self, forest: PrefixForest) -> _Pass:
        """Arrange every request and remember it, in order."""
        done = _Pass()
        for number, wanted in self._order():
            request = self._trace.request(number)
            started = time.thread_time()
            tree = forest.tree(_GROUP)
            layout = arrange(
                request, policy=self._policy, tree=tree, count=self._count, wanted=wanted
            )
            forest.remember(_GROUP, layout.plan)
            spent = time.thread_time() - started + self._scheduling_s
            done.add(number, layout, self._trace, spent)
        return done

    def _order(self) -> Sequence[tuple[int, tuple[Fingerprint, ...] | None]]:
        if self._schedule is not None:
            return self._schedule
        return [(number, None) for number in range(len(self._trace.requests))]

    def _scheduled(self) -> list[tuple[int, tuple[Fingerprint, ...] | None]]:
        started = time.thread_time()
        batch = []
        for number in range(len(self._trace.requests)):
            blocks = make_blocks(self._trace.request(number).documents, policy=self._policy)
            batch.append([Item(b.hash, self._count(b.text), b.text) for b in blocks])
        slots = schedule(batch, policy=self._policy)
        self._scheduling_s = (time.thread_time() - started) / max(1, len(batch))
        return [
            (slot.request, tuple(batch[slot.request][at].key for at in slot.order))
            for slot in slots
        ]

    def hit_rate(self, done: _Pass, capacity_tokens: int | None) -> float:
        """Return the share of document tokens that a prefix cache of this size finds."""
        cache = PrefixCache(capacity_tokens)
        total = sum(done.tokens[key] for keys in done.printed for key in keys)
        found = sum(cache.serve(sequence) for sequence in done.sequences)
        return found / total if total else 0.0

    def computed(self, done: _Pass, block_size: int) -> float:
        """Return the tokens of documents that an engine with whole KV blocks computes.

        As a share of all of them as they are printed without padding; its cache is unbounded.
        """
        plain = replace(self._policy, align_blocks=False)
        blocks = make_blocks(tuple(self._trace.documents.values()), policy=plain)
        unpadded: dict[Hashable, int] = {
            block.hash: self._count(block.text + BLOCK_SEPARATOR) for block in blocks
        }
        printed = {key: self._count(text + BLOCK_SEPARATOR) for key, text in done.texts.items()}
        cache, total, computed = PrefixCache(), 0, 0
        for served in done.sequences:
            sequence = [(key, printed[key]) for key, _ in served]
            found = cache.serve(sequence)
            total += sum(unpadded[key] for key, _ in sequence)
            computed += sum(tokens for _, tokens in sequence) - found // block_size * block_size
        return computed / total if total else 0.0

    def costs(self, done: _Pass, rules: Sequence[CacheRules]) -> dict[str, float]:
        """Return the relative input cost by rules; those that bill alike are replayed once."""
        known: dict[Hashable, float] = {}
        costs = {}
        for one in rules:
            terms = (one.match, one.read, one.lifetimes[0].write, one.min_tokens)
            key = (*terms, one.step_tokens, one.max_marks, one.lookback)
            if key not in known:
                known[key] = self._marked(one) if one.marked else self._automatic(one, done)
            costs[one.name] = known[key]
        return costs

    def _automatic(self, rules: CacheRules, done: _Pass) -> float:
        cache = AutomaticCache(rules)
        for number, sequence in zip(done.numbers, done.sequences, strict=True):
            cache.serve([_SYSTEM, *sequence], self._length(number, sequence))
        return cache.bill.relative

    def _marked(self, rules: CacheRules) -> float:
        """Replay with planned marks: what was written counts in the walk."""
        eternal = Lifetime(seconds=None, write=rules.lifetimes[0].write)
        forever = _with_lifetime(rules, eternal)
        forest = _forest(self._trace, None)
        cache = MarkedCache(forever)
        for number, wanted in self._order():
            tree = forest.tree(_GROUP)
            layout, plan = self._plan(number, wanted, tree, forever)
            forest.remember(_GROUP, layout.plan, marks=plan)
            ids = self._trace.requests[number][1]
            sequence = [(b.hash, self._trace.tokens[ids[b.rank]]) for b in layout.blocks]
            marks = [mark.block + 1 for mark in plan.breakpoints]
            cache.serve([_SYSTEM, *sequence], marks, self._length(number, sequence))
        return cache.bill.relative

    def _plan(
        self,
        number: int,
        wanted: tuple[Fingerprint, ...] | None,
        tree: GroupTree,
        rules: CacheRules,
    ) -> tuple[Layout, MarkPlan]:
        request = self._trace.request(number).replace(system=_SYSTEM_TEXT)
        layout = arrange(
            request, policy=self._policy, tree=tree, count=self._counted, wanted=wanted
        )
        return layout, plan_breakpoints(layout, rules=rules, tree=tree)

    def _counted(self, text: str) -> int:
        return _SYSTEM_TOKENS if text.endswith(_SYSTEM_TEXT + "\n") else self._count(text)

    def _length(self, number: int, sequence: Sequence[tuple[Hashable, int]]) -> int:
        question = self._count(self._trace.requests[number][0])
        return _SYSTEM_TOKENS + sum(tokens for _, tokens in sequence) + question


_SYSTEM: tuple[Hashable, int] = ("system", _SYSTEM_TOKENS)
_SYSTEM_TEXT = "Answer from the documents alone."


def _with_lifetime(rules: CacheRules, lifetime: Lifetime) -> CacheRules:
    return replace(rules, lifetimes=(lifetime,))
