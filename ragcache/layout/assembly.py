"""What every arrangement shares: heads, the order of blocks, and the finished layout."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..types import Block, Document, Fingerprint, JsonObject, Layout, Message
from .forest import GroupTree
from .ordering import Item, order_blocks
from .plan import Count, Part, Plan, Step
from .policy import LayoutPolicy
from .render import boundaries_of, parts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every step of one arrangement needs."""

    policy: LayoutPolicy
    tree: GroupTree | None
    count: Count
    now_s: float
    #: Block hashes in the order wanted, where a schedule has chosen it.
    wanted: tuple[Fingerprint, ...] | None = None
    #: Tokens of the blocks, each counted once.
    counted: dict[Fingerprint, int] = field(default_factory=dict)

    def tokens_of(self, block: Block) -> int:
        """Return the tokens of a block."""
        known = self.counted.get(block.hash)
        if known is None:
            known = self.counted[block.hash] = self.count(block.text)
        return known


def head_of(parts: Sequence[Part], count: Count) -> Step:
    """Return all that stands before the first block as one step of the prefix."""
    digest = hashlib.sha256(b"ragcache/head/1:%d" % len(parts))
    for part in parts:
        text = part.text.encode("utf-8", "surrogatepass")
        digest.update(b":%d:%b" % (len(text), text))
    return Step(
        key=Fingerprint(digest.hexdigest()), tokens=sum([count(part.text) for part in parts])
    )


def ordered(
    blocks: Sequence[Block], head: Step, context: Context, *, moving: bool
) -> tuple[Block, ...]:
    """Return the blocks in the order of the prompt."""
    if context.wanted is not None:
        places = {key: at for at, key in enumerate(context.wanted)}
        return tuple(sorted(blocks, key=lambda b: places.get(b.hash, len(places) + b.rank)))
    items = [Item(block.hash, context.tokens_of(block), block.text) for block in blocks]
    tokens = head.tokens + sum([item.tokens for item in items])
    if not moving or tokens < context.policy.min_prefix_tokens:
        return tuple(blocks)
    tree = context.tree
    order = order_blocks(
        items,
        policy=context.policy,
        known=tree.known if tree is not None else None,
        start=tree.tree.root.child(head.key) if tree is not None else None,
        now_s=context.now_s,
    )
    return tuple([blocks[at] for at in order])


def step_of(block: Block, context: Context) -> Step:
    """Return a block as a step of the prefix."""
    return Step(key=block.hash, tokens=context.tokens_of(block), names=_names_of(block))


def _names_of(block: Block) -> tuple[str, ...]:
    """Return under which names a change of the block's documents may be announced."""
    if len(block.documents) == 1:
        return block.documents[0].names
    return tuple(dict.fromkeys(name for document in block.documents for name in document.names))


def finished(
    messages: tuple[Message, ...],
    tools: tuple[JsonObject, ...],
    *,
    head: Step,
    blocks: tuple[Block, ...],
    cuts: tuple[tuple[int, int], ...],
    steps: tuple[Step, ...],
    context: Context,
    tail: str = "",
    dropped: tuple[Document, ...] = (),
    notes: tuple[str, ...] = (),
) -> Layout:
    """Return the layout with its boundaries, its prediction, and what is to be remembered.

    `tail` is the text behind the head of a prompt without blocks.
    """
    parts = parts_of(messages, tools)
    named = {step.key: step.names for step in steps}
    return Layout(
        messages=messages,
        tools=tools,
        blocks=blocks,
        dropped=dropped,
        notes=notes,
        boundaries=boundaries_of(messages, parts, cuts),
        predicted_tokens=_reused(head, steps, context),
        plan=Plan(
            head=head,
            steps=steps,
            ranked=tuple([b.hash for b in sorted(blocks, key=_rank)]),
            names={b.hash: named.get(b.hash) or _names_of(b) for b in blocks},
            parts=parts,
            cuts=cuts,
            total_tokens=head.tokens
            + sum([step.tokens for step in steps])
            + context.count(_behind(messages, cuts) if cuts else tail),
        ),
    )


def _rank(block: Block) -> int:
    return block.rank


def _behind(messages: Sequence[Message], cuts: Sequence[tuple[int, int]]) -> str:
    """Return the text behind the last block."""
    index, end = cuts[-1]
    return messages[index].text()[end:] + "".join([m.text() for m in messages[index + 1 :]])


def _reused(head: Step, steps: Sequence[Step], context: Context) -> int:
    """Return the tokens of the prefix that the target should hold, 0 below the minimum."""
    if context.tree is None:
        return 0
    tree, tokens = context.tree.tree, 0
    for node in tree.find((head.key, *(step.key for step in steps))):
        if not tree.alive(node, context.now_s):
            break
        tokens += node.tokens
    return tokens if tokens >= context.policy.min_prefix_tokens else 0
