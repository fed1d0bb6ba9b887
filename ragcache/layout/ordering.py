"""The order of the blocks: first what was already sent, then what will be sent again.

Two parts. The walk finds, among the sequences already sent, the path made of this request's
blocks that is worth the most tokens. The tail orders the remaining blocks by how often, and in
how large company, they were retrieved together with all that stands before them, so that later
requests find a path of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..types import Fingerprint
from .policy import LayoutPolicy
from .statistics import CoRetrieval
from .tree import Node, PrefixTree
from .wording import Wording

#: Weight of a past request for each block of the prefix that it did not hold.
_MISSING = 0.02
#: Weight of full likeness of wording against one past request.
_WORDING = 1.0
#: With so many past requests that share a block, wording has nothing to add; with fewer neither
#: where half of all requests do.
_ENOUGH = 64
_FEW = 16
_HALF = 0.5
#: Where fewer blocks than this share come back, no order is worth reading their texts for.
_RETURNING = 0.05
#: Worth of a block that was sent but not written, where only what was written is found again.
_UNWRITTEN = 0.1


class Item(NamedTuple):
    """A block as the ordering sees it; a request's items come in retrieval order."""

    key: Fingerprint
    tokens: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of a trust group: sequences sent, sets retrieved, the words of the blocks.

    `marked` says that the target finds again only what was marked and written.
    """

    tree: PrefixTree
    statistics: CoRetrieval
    wording: Wording | None = None
    marked: bool = False


def order_blocks(
    items: Sequence[Item],
    *,
    policy: LayoutPolicy,
    known: Knowledge | None = None,
    start: Node | None = None,
    now_s: float = 0.0,
) -> tuple[int, ...]:
    """Return the positions in `items` in the order of the prompt.

    Args:
        items: The blocks in retrieval order.
        policy: Ordering, pins and displacement limit.
        known: What was sent before; None orders by retrieval rank.
        start: The node of the prompt's head in the tree, None where the head is new.
        now_s: The clock, for nodes that have expired.
    """
    ranks = tuple(range(len(items)))
    if policy.ordering == "retrieved" or len(items) < 2:
        return ranks
    pinned = tuple(reversed(ranks[: policy.pin_top]))
    free = ranks[policy.pin_top :]
    if policy.ordering == "sorted":
        wanted = tuple(sorted(free, key=lambda at: items[at].key))
    elif known is None:
        wanted = free
    else:
        path: tuple[int, ...] = ()
        if start is not None:
            path = _Walk(items, free, known, policy.max_visits, now_s).best(start)
        rest = [at for at in free if at not in path]
        wanted = path + tail(items, path, rest, known)
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


class _Walk:
    """Exhaustive search with a bound for the most valuable path of known nodes."""

    def __init__(
        self,
        items: Sequence[Item],
        free: Sequence[int],
        known: Knowledge,
        max_visits: int,
        now_s: float,
    ) -> None:
        self._items = items
        self._left = {items[at].key: at for at in reversed(free)}
        self._tree = known.tree
        self._marked = known.marked
        self._max_visits = max_visits
        self._now_s = now_s

    def best(self, start: Node) -> tuple[int, ...]:
        tokens_left = sum(self._items[at].tokens for at in self._left.values())
        waiting: list[tuple[Node, float, int, tuple[int, ...]]] = [(start, 0, tokens_left, ())]
        best: tuple[float, int] = (0.0, 0)
        best_path: tuple[int, ...] = ()
        for _ in range(self._max_visits):
            if not waiting:
                break
            node, value, tokens_left, path = waiting.pop()
            if path and (value, node.visits) > best:
                best, best_path = (value, node.visits), path
            if value + tokens_left < best[0]:
                continue
            for at, child in reversed(self._among(node)):  # the last one in goes on first
                if at not in path and self._tree.alive(child, self._now_s):
                    tokens = self._items[at].tokens
                    worth = tokens * self._share(child)
                    waiting.append((child, value + worth, tokens_left - tokens, (*path, at)))
        return best_path

    def _among(self, node: Node) -> list[tuple[int, Node]]:
        """Return this request's blocks among the children, the worst ranked first."""
        left, children = self._left, node.several
        if node.only is not None:
            at = left.get(node.only.key)
            return [] if at is None else [(at, node.only)]
        if len(children) < len(left):
            found = [(left[key], child) for key, child in children.items() if key in left]
            return sorted(found, reverse=True) if len(found) > 1 else found
        return [(at, children[key]) for key, at in left.items() if key in children]

    def _share(self, node: Node) -> float:
        written = not self._marked or node.record.written_at_s is not None
        return 1.0 if written else _UNWRITTEN


def tail(
    items: Sequence[Item], path: Sequence[int], rest: Sequence[int], known: Knowledge
) -> tuple[int, ...]:
    """Return `rest` ordered by conditional popularity, weighted by overlap in tokens.

    Each past request votes for the blocks that it shares with this one, with the square of the
    shared tokens that are still to be placed; its vote counts little once a block stands before
    them that it did not hold. Ties go to the better rank, which also moves the documents least.
    """
    if len(rest) < 2:
        return tuple(rest)
    held, weights = _votes(items, known)
    if not weights.size:
        return tuple(rest)
    kept = list(np.where(held > 0, 1.0, _MISSING))
    for at in path:
        weights *= kept[at]
    left = np.zeros((len(items), 1))  # tokens of the blocks that are to be placed
    left[rest, 0] = [items[at].tokens for at in rest]
    tokens = held * left
    shared = tokens.sum(axis=0)
    result: list[int] = []
    for _ in rest[1:]:  # the last one has no choice
        scores = tokens @ (weights * shared * shared)
        chosen = int(scores.argmax())
        if scores[chosen] <= 0:
            break
        result.append(chosen)
        weights *= kept[chosen]
        shared -= tokens[chosen]
        tokens[chosen] = 0.0
    return tuple(result) + tuple(at for at in rest if at not in result)


def _votes(
    items: Sequence[Item], known: Knowledge
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return who votes: past requests, and while those are few, blocks that are worded alike.

    One row a block, one column a voter, and how much each voter weighs.
    """
    held, requests = known.statistics.shared([item.key for item in items])
    enough = min(_ENOUGH, max(_FEW, _HALF * len(known.statistics)))
    told = requests.sum() >= enough or known.statistics.returning < _RETURNING
    if known.wording is None or told:
        return held, requests
    alike = known.wording.similarities([(item.key, item.text) for item in items])
    groups, strength = _groups(alike)
    votes = np.concatenate([requests, _WORDING * strength])
    return np.concatenate([held, groups], axis=1), votes


def _groups(
    alike: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Return each block with its 1, 2, ... nearest ones, as far as half of the request.

    One column a group, and the likeness of its farthest member.
    """
    most = max(1, len(alike) // 2 - 1)
    nearest = np.argsort(-alike, axis=1, kind="stable")[:, :most]
    strength = np.take_along_axis(alike, nearest, axis=1)
    one = np.eye(len(alike))
    members = one[:, None, :] + np.cumsum(one[nearest], axis=1)
    worded = strength > 0
    return members[worded].T, strength[worded]
