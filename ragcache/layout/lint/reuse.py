"""What the recorded order of documents cost: reused tokens against those another order gives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from ...types import Fingerprint
from ..forest import GroupTree, PrefixForest
from ..ordering import Item, order_blocks
from ..plan import Count, Plan, Step
from ..policy import LayoutPolicy
from .findings import Finding
from .segments import Located

_POLICY = LayoutPolicy(min_prefix_tokens=0)


def lost_reuse(located: Sequence[Located], count: Count, *, least: float) -> Iterator[Finding]:
    """Yield R1 where the recorded order reuses less than the prefix tree by `least` or more."""
    requests = [_items(one, count) for one in located if len(one.blocks) > 1]
    total = sum(item.tokens for items in requests for item in items)
    if not total:
        return
    sent = _reused(requests, reorder=False) / total
    possible = _reused(requests, reorder=True) / total
    if possible - sent >= least:
        first = next(one.record for one in located if len(one.blocks) > 1)
        detail = (
            f"{sent:.1%} of {total} document tokens reused as sent, {possible:.1%} possible "
            f"over {len(requests)} requests"
        )
        yield Finding(rule="R1", path=first.path, line=first.line, detail=detail)


def _items(located: Located, count: Count) -> list[Item]:
    items = {}
    for block in located.blocks:
        key = Fingerprint(hashlib.sha256(block.text.encode("utf-8", "surrogatepass")).hexdigest())
        items[key] = Item(key, count(block.text), block.text)
    return list(items.values())


def _reused(requests: Sequence[Sequence[Item]], *, reorder: bool) -> int:
    forest = PrefixForest(max_entries=max(1, len(requests)), max_tokens=None)
    group, reused = forest.tree("log"), 0
    head = Step(key=Fingerprint("head"), tokens=0)
    for items in requests:
        order = _order(items, group, head) if reorder else tuple(range(len(items)))
        steps = tuple(Step(key=items[at].key, tokens=items[at].tokens) for at in order)
        found = group.tree.find((head.key, *(step.key for step in steps)))
        reused += sum(node.tokens for node in found)
        ranked = tuple(item.key for item in items)
        group.remember(Plan(head=head, steps=steps, ranked=ranked))
    return reused


def _order(items: Sequence[Item], group: GroupTree, head: Step) -> tuple[int, ...]:
    start = group.tree.root.child(head.key)
    return order_blocks(items, policy=_POLICY, known=group.known, start=start)
