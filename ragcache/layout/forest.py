"""The trees of all trust groups, bounded in number, in sequences and in tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..types import Layout
from .breakpoints import Boundary, Learned, MarkPlan, believed_life_s, note_sent
from .difference import Difference, first_difference
from .engine import BlockHash
from .ordering import Knowledge
from .plan import Part, Plan
from .rules import CacheRules
from .statistics import CoRetrieval
from .tree import Eviction, PrefixTree, Record
from .warm import HotPrompts
from .wording import Wording


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBefore:
    """How much of a prompt this trust group has sent before, whatever became of it.

    Args:
        tokens: Of the prefix.
        idle_s: Since its end was last sent; None where nothing of it was.
    """

    tokens: int = 0
    idle_s: float | None = None


class GroupTree:
    """What is known of one trust group: sequences sent, sets retrieved, the last prompt's head.

    Never shared between trust groups: its content decides the order of a prompt, and an order
    that depends on another tenant's documents would tell of them.
    """

    def __init__(
        self,
        *,
        tree: PrefixTree,
        statistics: CoRetrieval,
        wording: Wording | None = None,
    ) -> None:
        self.tree = tree
        self.statistics = statistics
        self.known = Knowledge(tree, statistics, wording)
        self.learned = Learned()
        #: How many prompts were sent.
        self.requests = 0
        self.last: tuple[Part, ...] = ()

    def remember(self, plan: Plan, *, marks: MarkPlan | None = None, now_s: float = 0.0) -> None:
        """Note that a prompt was sent, with these marks."""
        support = self._support(plan) if marks is not None else ()
        if self.known.marked != (marks is not None):
            self.known = replace(self.known, marked=marks is not None)
        self.tree.insert((plan.head, *plan.steps), now_s=now_s)
        if marks is not None:
            note_sent(
                self.boundaries(plan, support),
                marks,
                learned=self.learned,
                total_tokens=plan.total_tokens,
                now_s=now_s,
            )
        if plan.ranked:
            self.statistics.add(plan.ranked, names=plan.names)
        self.last = plan.parts
        self.requests += 1

    def forget(self, names: Iterable[str]) -> int:
        """Forget documents that changed, by id, source or block hash; return how many nodes."""
        wanted = tuple(names)
        blocks = self.statistics.forget(wanted)
        if self.known.wording is not None:
            self.known.wording.forget(blocks)
        return self.tree.forget(wanted)

    def sent_before(self, plan: Plan, *, now_s: float = 0.0) -> SentBefore:
        """Return how much of a prompt was sent before."""
        nodes = self.tree.find(step.key for step in (plan.head, *plan.steps))
        if not nodes:
            return SentBefore()
        tokens = sum(node.tokens for node in nodes)
        return SentBefore(tokens=tokens, idle_s=max(0.0, now_s - nodes[-1].used_at_s))

    def note_engine(
        self, plan: Plan, chain: Sequence[BlockHash], *, block_size: int, prompt_tokens: int
    ) -> None:
        """Note which KV blocks of the engine hold a prompt that was sent.

        Where its blocks end is scaled from this side's count of tokens: a KV block more or less
        tells the same, because an engine evicts a prompt from its end.
        """
        steps = (plan.head, *plan.steps)
        scale = prompt_tokens / max(1, plan.total_tokens)
        tokens, ends = 0, []
        for step in steps:
            tokens += step.tokens
            ends.append(int(tokens * scale))
        keys = [step.key for step in steps]
        self.tree.note_engine(keys, ends, chain, block_size=block_size)

    def boundaries(self, plan: Plan, support: Sequence[int] = ()) -> tuple[Boundary, ...]:
        """Return the places where a prefix of this prompt may end, with what is known of each."""
        steps = (plan.head, *plan.steps)
        support = support or self._support(plan)
        records = [node.record for node in self.tree.find(step.key for step in steps)]
        records += [Record() for _ in steps[len(records) :]]
        tokens, found = 0, []
        for step, record, count in zip(steps, records, support, strict=True):
            tokens += step.tokens
            found.append(Boundary(tokens=tokens, record=record, support=count))
        return tuple(found)

    def _support(self, plan: Plan) -> tuple[int, ...]:
        """Return how many past requests held the first 0, 1, 2, ... blocks of the prompt."""
        held, requests = self.statistics.shared([step.key for step in plan.steps])
        counts = np.cumprod(held, axis=0) @ requests
        return (len(self.statistics), *(int(count) for count in counts))

    def difference(self, layout: Layout) -> Difference | None:
        """Return where a prompt first differs from the previous one of this group."""
        if not self.last or not isinstance(layout.plan, Plan):
            return None
        return first_difference(self.last, layout.plan.parts)


class PrefixForest:
    """Prefix trees, one for each trust group.

    Args:
        max_entries: Sequences one tree remembers, and trust groups the forest remembers.
        max_nodes: Nodes of all trees together: beyond it whole trust groups are forgotten, the
            least recently asking one first.
        max_tokens: Tokens one tree remembers: the size of the target's cache where it is known.
        max_blocks_per_entry: Bound of the nodes: `max_entries` times this.
        max_requests: Retrievals one trust group remembers: 1,000 tell what all would, to .002.
        lifetime_s: The provider's lifetime of an unused prefix; None where it is unknown.
        eviction: Which sequence is forgotten first.
    """

    def __init__(
        self,
        *,
        max_entries: int = 1000,
        max_nodes: int = 200_000,
        max_tokens: int | None = 10_000_000,
        max_blocks_per_entry: int = 16,
        max_requests: int = 1000,
        lifetime_s: float | None = None,
        eviction: Eviction = "lru",
    ) -> None:
        self._max_entries = max_entries
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._max_nodes = max(max_nodes, max_entries * max_blocks_per_entry)
        self._max_nodes_of_one = max_entries * max_blocks_per_entry
        #: The texts behind the trees, of all trust groups.
        self.hot = HotPrompts(max_entries=max_entries)
        self._lifetime_s = lifetime_s
        self._eviction: Eviction = eviction
        self._groups: OrderedDict[str, GroupTree] = OrderedDict()
        self._nodes = 0

    def __len__(self) -> int:
        return len(self._groups)

    def tree(self, group: str, *, rules: CacheRules | None = None) -> GroupTree:
        """Return the tree of a trust group, an empty one at first.

        Args:
            group: The trust group, and the model where it asks several: caches share nothing.
            rules: The provider's: how long an unused prefix is expected to be held.
        """
        found = self._groups.get(group)
        if found is None:
            found = self._groups[group] = self._new()
            while len(self._groups) > self._max_entries:
                self._drop_oldest()
        self._groups.move_to_end(group)
        if rules is not None:
            found.tree.lifetime_s = believed_life_s(rules.lifetimes[0], found.learned)
        return found

    def remember(
        self,
        group: str,
        plan: Plan | None,
        *,
        marks: MarkPlan | None = None,
        now_s: float = 0.0,
    ) -> None:
        """Note that a prompt of this trust group was sent, with these marks."""
        if plan is None:
            return
        tree = self.tree(group)
        before = len(tree.tree)
        tree.remember(plan, marks=marks, now_s=now_s)
        self._nodes += len(tree.tree) - before
        while self._nodes > self._max_nodes and len(self._groups) > 1:
            self._drop_oldest()

    def forget(self, names: Iterable[str]) -> int:
        """Forget documents that changed, by id, source or block hash, in every trust group."""
        wanted = tuple(names)
        forgotten = sum(group.forget(wanted) for group in self._groups.values())
        self.hot.forget(wanted)
        self._nodes -= forgotten
        return forgotten

    def find(self, group: str) -> GroupTree | None:
        """Return the tree of a trust group, None where there is none."""
        return self._groups.get(group)

    def clear(self) -> None:
        """Forget what was sent: the target's cache is empty. What is retrieved together stays."""
        for group in self._groups.values():
            group.tree.clear()
        self._nodes = 0

    def _drop_oldest(self) -> None:
        _, dropped = self._groups.popitem(last=False)
        self._nodes -= len(dropped.tree)

    def _new(self) -> GroupTree:
        tree = PrefixTree(
            max_nodes=self._max_nodes_of_one,
            max_tokens=self._max_tokens,
            lifetime_s=self._lifetime_s,
            eviction=self._eviction,
        )
        return GroupTree(
            tree=tree,
            statistics=CoRetrieval(max_requests=self._max_requests),
            wording=Wording(max_blocks=4 * self._max_entries),
        )
