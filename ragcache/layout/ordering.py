"""The order of the blocks: first what was already sent, then what will be sent again.

Two parts. The walk finds, among the sequences already sent, the path made of this request's
blocks that is worth the most tokens. The tail orders the remaining blocks by how often, and in
how large company, they were retrieved together with all that stands before them, so that later
requests find a path of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..types import Fingerprint
from .policy import LayoutPolicy
from .statistics import CoRetrieval
from .tree import Node, PrefixTree


@dataclass(frozen=True, slots=True)
class Item:
    """A block as the ordering sees it; a request's items come in retrieval order."""

    key: Fingerprint
    tokens: int


def order_blocks(
    items: Sequence[Item],
    *,
    policy: LayoutPolicy,
    tree: PrefixTree | None = None,
    start: Node | None = None,
    statistics: CoRetrieval | None = None,
    now_s: float = 0.0,
) -> tuple[int, ...]:
    """Return the positions in `items` in the order of the prompt.

    Args:
        items: The blocks in retrieval order.
        policy: Ordering, pins and displacement limit.
        tree: Sequences sent before; None orders by retrieval rank.
        start: The node of the prompt's head in the tree, None where the head is new.
        statistics: Which blocks were retrieved together lately.
        now_s: The clock, for nodes that have expired.
    """
    ranks = tuple(range(len(items)))
    if policy.ordering == "retrieved" or len(items) < 2:
        return ranks
    pinned = tuple(reversed(ranks[: policy.pin_top]))
    free = ranks[policy.pin_top :]
    if policy.ordering == "sorted":
        wanted = tuple(sorted(free, key=lambda at: items[at].key))
    elif tree is None:
        wanted = free
    else:
        wanted = _reusing(items, free, policy, tree, start, statistics, now_s)
    if policy.max_displacement is not None:
        return within(wanted + pinned, policy.max_displacement)
    return wanted + pinned


def within(wanted: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return `wanted` with no rank further than `limit` from its own position.

    Position by position: a block whose rank + limit is this position must go now, one whose
    rank - limit lies behind it must wait; among the rest the wanted order decides.
    """
    left, result = list(wanted), []
    for position in range(len(wanted)):
        due = [rank for rank in left if rank + limit <= position]
        allowed = due or [rank for rank in left if rank - limit <= position]
        result.append(allowed[0])
        left.remove(allowed[0])
    return tuple(result)


def _reusing(
    items: Sequence[Item],
    free: Sequence[int],
    policy: LayoutPolicy,
    tree: PrefixTree,
    start: Node | None,
    statistics: CoRetrieval | None,
    now_s: float,
) -> tuple[int, ...]:
    path: tuple[int, ...] = ()
    if start is not None:
        path = _Walk(items, free, tree, policy.max_visits, now_s).best(start)
    rest = [at for at in free if at not in path]
    if statistics is None or not rest:
        return path + tuple(rest)
    return path + tail(items, path, rest, statistics.masks([item.key for item in items]))


class _Walk:
    """Exhaustive search with a bound for the most valuable path of known nodes."""

    def __init__(
        self,
        items: Sequence[Item],
        free: Sequence[int],
        tree: PrefixTree,
        max_visits: int,
        now_s: float,
    ) -> None:
        self._items = items
        self._left = {items[at].key: at for at in reversed(free)}
        self._tree = tree
        self._visits_left = max_visits
        self._now_s = now_s
        self._best: tuple[int, int] = (0, 0)
        self._best_path: tuple[int, ...] = ()

    def best(self, start: Node) -> tuple[int, ...]:
        tokens_left = sum(self._items[at].tokens for at in self._left.values())
        self._search(start, 0, tokens_left, ())
        return self._best_path

    def _search(self, node: Node, value: int, tokens_left: int, path: tuple[int, ...]) -> None:
        if path and (value, node.visits) > self._best:
            self._best, self._best_path = (value, node.visits), path
        if value + tokens_left < self._best[0] or self._visits_left <= 0:
            return
        children = node.children
        for key, at in self._left.items():
            child = children.get(key)
            if child is None or at in path or not self._tree.alive(child, self._now_s):
                continue
            self._visits_left -= 1
            tokens = self._items[at].tokens
            self._search(child, value + tokens, tokens_left - tokens, (*path, at))


def tail(
    items: Sequence[Item], path: Sequence[int], rest: Sequence[int], masks: dict[int, int]
) -> tuple[int, ...]:
    """Return `rest` ordered by conditional popularity, weighted by overlap in tokens.

    `masks` counts past requests by the bits of `items` they held. Ties go to the better rank,
    which also moves the documents least.
    """
    before = sum(1 << at for at in path)
    left = sum(1 << at for at in rest)
    groups = [(mask, n) for mask, n in masks.items() if mask & before == before and mask & left]
    result: list[int] = []
    while left:
        chosen = _most_shared(items, groups, left)
        if chosen is None:
            result.extend(at for at in rest if left >> at & 1)
            break
        result.append(chosen)
        left &= ~(1 << chosen)
        groups = [(mask, n) for mask, n in groups if mask >> chosen & 1 and mask & left]
    return tuple(result)


def _most_shared(items: Sequence[Item], groups: Sequence[tuple[int, int]], left: int) -> int | None:
    scores: dict[int, float] = {}
    for mask, count in groups:
        shared = bits(mask & left)
        weight = count * sum(items[at].tokens for at in shared) ** 2
        for at in shared:
            scores[at] = scores.get(at, 0) + weight
    if not scores:
        return None
    return max(scores, key=lambda at: (scores[at] * items[at].tokens, -at))


def bits(mask: int) -> list[int]:
    """Return the positions of the set bits, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
