"""A bounded prefix tree of sent block sequences: what the target's cache probably holds.

Recency order is kept so that a parent is always more recent than its children; the oldest node
is therefore a leaf, and evicting from the old end never cuts a path in the middle. That is also
how engines evict: tail blocks first (vLLM, docs/design/prefix_caching.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..types import Fingerprint
from .engine import BlockHash
from .index import Index
from .plan import Step

Eviction = Literal["lru", "lfu", "fifo"]


@dataclass(slots=True)
class Record:
    """What is known of the prefix that ends at a node, for the planning of marks."""

    visits: int = 0
    used_at_s: float = 0.0
    written_at_s: float | None = None
    #: Where its last visit is counted: (class of visits, class of support).
    bucket: tuple[int, int] | None = None


class Node:
    """A piece of a prefix at its place: the same block behind another prefix is another node.

    There are many of them, mostly with one child or none and, where nothing is marked, without a
    record: a table of children and a record are made when they are needed. What is not there is
    not walked by the garbage collection either.
    """

    __slots__ = (
        "_record",
        "engine_block",
        "key",
        "names",
        "only",
        "parent",
        "several",
        "tokens",
        "used_at_s",
        "visits",
    )

    def __init__(self, key: Fingerprint, tokens: int, parent: Node | None) -> None:
        self.key = key
        self.tokens = tokens
        self.parent = parent
        #: The child, where there is just one; else they are in `several`.
        self.only: Node | None = None
        self.several = _NO_CHILDREN
        self.names: tuple[str, ...] = ()
        self._record: Record | None = None
        #: The last KV block of the engine that ends inside this prefix.
        self.engine_block: BlockHash | None = None
        self.visits = 0
        self.used_at_s = 0.0

    @property
    def record(self) -> Record:
        """What is known of the prefix that ends here, for the planning of marks."""
        if self._record is None:
            self._record = Record()
        return self._record

    @property
    def children(self) -> Collection[Node]:
        """What was sent right behind this prefix."""
        return self.several.values() if self.only is None else (self.only,)

    def child(self, key: Fingerprint) -> Node | None:
        """Return the child with this key, None where there is none."""
        if self.only is None:
            return self.several.get(key)
        return self.only if self.only.key == key else None

    def add(self, child: Node) -> None:
        """Put a child behind this node."""
        if self.only is None and not self.several:
            self.only = child
            return
        if self.only is not None:
            self.several = {self.only.key: self.only}
            self.only = None
        self.several[child.key] = child

    def drop(self, key: Fingerprint) -> None:
        """Take a child away, where it is there."""
        if self.only is None:
            self.several.pop(key, None)
        elif self.only.key == key:
            self.only = None

    def clear(self) -> None:
        """Take all children away."""
        self.only, self.several = None, _NO_CHILDREN


#: Of every node that has not several; never written to.
_NO_CHILDREN: dict[Fingerprint, Node] = {}


class PrefixTree:
    """Sequences of blocks sent to one target for one trust group.

    Args:
        max_nodes: Bound of the number of nodes.
        max_tokens: Bound of their tokens; None leaves them unbounded.
        lifetime_s: A node unused for longer is not expected in the target's cache any more.
        eviction: Which leaf goes first: least recently used, least often used, oldest.
    """

    def __init__(
        self,
        *,
        max_nodes: int | None = None,
        max_tokens: int | None = None,
        lifetime_s: float | None = None,
        eviction: Eviction = "lru",
    ) -> None:
        self.root = Node(Fingerprint(""), 0, None)
        #: What the engines hold by their own events; None estimates by lifetime.
        self.held: Container[bytes] | None = None
        self.tokens = 0
        self._max_nodes = max_nodes
        self._max_tokens = max_tokens
        self.lifetime_s = lifetime_s
        self._eviction = eviction
        self._recency: OrderedDict[Node, None] = OrderedDict()
        self._by_name: Index[Node] = Index()

    def __len__(self) -> int:
        return len(self._recency)

    def alive(self, node: Node, now_s: float) -> bool:
        """Return whether the target still holds the node: surely where its events are mirrored."""
        if self.held is not None and node.engine_block is not None:
            return node.engine_block in self.held
        return self.lifetime_s is None or now_s - node.used_at_s <= self.lifetime_s

    def find(self, keys: Iterable[Fingerprint]) -> list[Node]:
        """Return the nodes of the longest known prefix of a sequence."""
        node, found = self.root, []
        for key in keys:
            child = node.child(key)
            if child is None:
                break
            found.append(child)
            node = child
        return found

    def note_engine(
        self,
        keys: Sequence[Fingerprint],
        ends: Sequence[int],
        chain: Sequence[BlockHash],
        *,
        block_size: int,
    ) -> None:
        """Note which KV blocks hold a sequence that was sent.

        Args:
            keys: Of the sequence, from the root.
            ends: How many tokens of the prompt stand before the end of each of them.
            chain: The hashes of the prompt's full blocks.
            block_size: Their size in tokens.
        """
        for node, end in zip(self.find(keys), ends, strict=False):
            full = min(end // block_size, len(chain))
            node.engine_block = chain[full - 1] if full else None

    def insert(self, steps: Sequence[Step], *, now_s: float = 0.0) -> None:
        """Note that a sequence was sent."""
        node, path = self.root, []
        for step in steps:
            child = node.child(step.key)
            if child is None:
                child = self._add(node, step)
            child.visits += 1
            child.used_at_s = now_s
            path.append(child)
            node = child
        self._touch(path)
        self._evict()

    def remove(self, node: Node) -> None:
        """Forget a node and everything behind it."""
        stack = [node]
        while stack:
            current = stack.pop()
            stack.extend(current.children)
            self._unlist(current)
        if node.parent is not None:
            node.parent.drop(node.key)

    def forget(self, names: Iterable[str]) -> int:
        """Forget every node of the named documents or blocks; return how many."""
        before = len(self)
        for name in names:
            for node in self._by_name.find(name):
                if node in self._recency:
                    self.remove(node)
        return before - len(self)

    def clear(self) -> None:
        """Forget everything: the engine was reset."""
        self.root.clear()
        self._recency.clear()
        self._by_name.clear()
        self.tokens = 0

    def _add(self, parent: Node, step: Step) -> Node:
        node = Node(step.key, step.tokens, parent)
        node.names = step.names
        parent.add(node)
        self._recency[node] = None
        self.tokens += node.tokens
        self._by_name.add((node.key, *node.names), node)
        return node

    def _unlist(self, node: Node) -> None:
        del self._recency[node]
        self.tokens -= node.tokens
        self._by_name.discard((node.key, *node.names), node)

    def _touch(self, path: Sequence[Node]) -> None:
        if self._eviction == "fifo":
            return
        for node in reversed(path):  # children first, so that parents end up more recent
            self._recency.move_to_end(node)

    def _evict(self) -> None:
        while self._over() and self._recency:
            self.remove(self._victim())

    def _over(self) -> bool:
        if self._max_nodes is not None and len(self._recency) > self._max_nodes:
            return True
        return self._max_tokens is not None and self.tokens > self._max_tokens

    def _victim(self) -> Node:
        if self._eviction == "lru":
            return next(iter(self._recency))
        leaves = (node for node in self._recency if not node.children)
        if self._eviction == "fifo":
            return next(leaves)
        return min(leaves, key=lambda node: node.visits)
