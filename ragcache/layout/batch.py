"""Many requests at once: which blocks go first, and which request goes first.

With room for everything, the tokens saved by a hierarchy of requests are the sum over its inner
nodes of the tokens that all requests below share. So the two items that share the most are
merged first, and the merged item holds what they share. A depth-first walk then gives both the
order of blocks in each prompt and the order of the prompts; it keeps its full reuse in a cache
that holds little more than one prompt.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..types import Fingerprint
from .ordering import Item, within
from .policy import LayoutPolicy

#: What a merge costs: a tenth of the tokens that only one of the two holds.
_LOSS = 0.1
#: Above so many looks at (block, item) pairs only the newest items of each block are compared.
_DENSE = 3_000_000
_NEWEST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One request of a schedule: its number in the batch, and its items' positions in order."""

    request: int
    order: tuple[int, ...]


@dataclass(slots=True)
class _Group:
    """Requests that share blocks, as a node of the hierarchy."""

    blocks: frozenset[Fingerprint]
    tokens: int
    requests: tuple[int, ...] = ()
    children: tuple[_Group, ...] = ()
    alive: bool = True
    number: int = field(default=0)


def schedule(
    batch: Sequence[Sequence[Item]], *, policy: LayoutPolicy | None = None
) -> tuple[Slot, ...]:
    """Return the requests in the order to send them, each with the order of its blocks.

    Args:
        batch: The items of each request, in retrieval order.
        policy: Its pins and displacement limit; no limits for None.
    """
    pinned = policy.pin_top if policy is not None else 0
    limit = policy.max_displacement if policy is not None else None
    free = [items[pinned:] for items in batch]
    return tuple(
        Slot(request=slot.request, order=_limited(slot.order, pinned, batch[slot.request], limit))
        for slot in _scheduled(free)
    )


def _limited(
    order: Sequence[int], pinned: int, items: Sequence[Item], limit: int | None
) -> tuple[int, ...]:
    """Return an order of the free items as one of all, the pinned ones last, best one last."""
    best = reversed(range(min(pinned, len(items))))
    wanted = (*(at + pinned for at in order), *best)
    return wanted if limit is None else within(wanted, limit)


def _scheduled(batch: Sequence[Sequence[Item]]) -> tuple[Slot, ...]:
    tokens = {item.key: item.tokens for items in batch for item in items}
    roots = _Clustering(_leaves(batch, tokens), tokens).roots()
    ranks = [{item.key: at for at, item in reversed(list(enumerate(items)))} for items in batch]
    slots = [slot for root in roots for slot in _emit(root, ranks)]
    return tuple(slots)


def _leaves(batch: Sequence[Sequence[Item]], tokens: Mapping[Fingerprint, int]) -> list[_Group]:
    """Return one group for each distinct set of blocks."""
    requests: dict[frozenset[Fingerprint], list[int]] = {}
    for number, items in enumerate(batch):
        requests.setdefault(frozenset(item.key for item in items), []).append(number)
    return [
        _Group(blocks, sum(tokens[block] for block in blocks), tuple(numbers), number=at)
        for at, (blocks, numbers) in enumerate(requests.items())
    ]


class _Clustering:
    """Exact greedy merging. The heap holds each live group's best partner, looked up anew only
    when that partner is gone."""

    def __init__(self, leaves: list[_Group], tokens: Mapping[Fingerprint, int]) -> None:
        self._groups = leaves
        self._tokens = tokens
        self._holders: dict[Fingerprint, dict[int, None]] = {}
        self._heap: list[tuple[float, int, int]] = []
        for group in leaves:
            self._list(group)
        work = sum(len(holders) ** 2 for holders in self._holders.values())
        self._newest = _NEWEST if work > _DENSE else None

    def roots(self) -> list[_Group]:
        for group in list(self._groups):
            self._push_best(group)
        while self._heap:
            _, first, second = heapq.heappop(self._heap)
            one, other = self._groups[first], self._groups[second]
            if not one.alive:
                continue
            if other.alive:
                self._push_best(self._merge(one, other))
            else:
                self._push_best(one)
        return [group for group in self._groups if group.alive]

    def _merge(self, one: _Group, other: _Group) -> _Group:
        blocks = one.blocks & other.blocks
        for group in (one, other):
            group.alive = False
            for block in group.blocks:
                del self._holders[block][group.number]
        tokens = sum(self._tokens[block] for block in blocks)
        merged = _Group(blocks, tokens, children=(one, other), number=len(self._groups))
        self._groups.append(merged)
        self._list(merged)
        return merged

    def _list(self, group: _Group) -> None:
        for block in group.blocks:
            self._holders.setdefault(block, {})[group.number] = None

    def _push_best(self, group: _Group) -> None:
        shared: dict[int, int] = {}
        for block in group.blocks:
            tokens = self._tokens[block]
            for number in self._compared(block):
                shared[number] = shared.get(number, 0) + tokens
        shared.pop(group.number, None)
        if not shared:
            return
        groups, own = self._groups, group.tokens
        best = max(
            shared,
            key=lambda n: ((1 + 2 * _LOSS) * shared[n] - _LOSS * (own + groups[n].tokens), -n),
        )
        score = (1 + 2 * _LOSS) * shared[best] - _LOSS * (own + groups[best].tokens)
        heapq.heappush(self._heap, (-score, group.number, best))

    def _compared(self, block: Fingerprint) -> Iterator[int]:
        holders = self._holders[block]
        if self._newest is None or len(holders) <= self._newest:
            return iter(holders)
        newest = reversed(holders)
        return (number for number, _ in zip(newest, range(self._newest), strict=False))


def _emit(root: _Group, ranks: Sequence[Mapping[Fingerprint, int]]) -> Iterator[Slot]:
    """Walk depth-first: each group prints what all below it share, a leaf the rest by rank."""
    stack: list[tuple[_Group, tuple[Fingerprint, ...]]] = [(root, ())]
    while stack:
        group, before = stack.pop()
        rank = ranks[_first_request(group)]
        new = sorted((block for block in group.blocks if block not in before), key=rank.__getitem__)
        path = before + tuple(new)
        stack.extend((child, path) for child in reversed(group.children))
        for number in group.requests:
            rank = ranks[number]
            yield Slot(request=number, order=tuple(rank[block] for block in path))


def _first_request(group: _Group) -> int:
    while group.children:
        group = group.children[0]
    return group.requests[0]
