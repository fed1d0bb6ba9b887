"""From a request to what is sent: stable text first, then blocks, then what varies."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..keys import content_hash, fingerprint
from ..types import (
    Block,
    Document,
    Fingerprint,
    Formatted,
    JsonObject,
    Label,
    Layout,
    Message,
    Request,
)
from .blocks import make_blocks
from .canonical import canonical_tools
from .conversation import Continued, Conversation, Placed, continued, extended, ranked_behind
from .foreign import cuts_of, moved, why_unchanged
from .forest import GroupTree
from .ordering import Item, order_blocks
from .plan import Count, Part, Plan, Step, quarter_of_characters
from .policy import LayoutPolicy
from .render import BLOCK_SEPARATOR, boundaries_of, parts_of, rank_note, reference_note, tail_text
from .window import Fit, fit

DEFAULT_POLICY = LayoutPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What every step of one arrangement needs."""

    policy: LayoutPolicy
    tree: GroupTree | None
    count: Count
    now_s: float
    #: Block hashes in the order wanted, where a schedule has chosen it.
    wanted: tuple[Fingerprint, ...] | None = None


def arrange(
    request: Request,
    *,
    policy: LayoutPolicy = DEFAULT_POLICY,
    tree: GroupTree | None = None,
    count: Count = quarter_of_characters,
    conversation: Conversation | None = None,
    now_s: float = 0.0,
    wanted: tuple[Fingerprint, ...] | None = None,
) -> Layout:
    """Return the request arranged so that as much as possible of it was sent before.

    Args:
        request: What is asked, with its documents in retrieval order.
        policy: How to arrange.
        tree: What was sent before in this trust group; None knows nothing.
        count: Counts tokens as the target does; the default estimates.
        conversation: What the earlier turns of this conversation sent, where that was kept.
        now_s: The clock, in seconds, that the tree's lifetimes are measured by.
        wanted: Hashes of the blocks in the order to print them, from a schedule.

    Raises:
        PromptTooLargeError: No document fits the window, and cutting is not allowed.
    """
    context = _Context(policy=policy, tree=tree, count=count, now_s=now_s, wanted=wanted)
    if request.formatted is not None:
        return _foreign(request, request.formatted, context)
    return _own(request, context, conversation)


# --- our own prompt ----------------------------------------------------------------------------


def _own(request: Request, context: _Context, conversation: Conversation | None) -> Layout:
    tools = canonical_tools(request.tools)
    system = _system(request)
    head = _head(parts_of(system, tools), context.count)
    earlier = continued(request.history, conversation, head.key)
    before = (*system, *earlier.messages)
    blocks, again, fitted = _fresh_blocks(request, earlier, before, context)
    start = head if not before[len(system) :] else _head(parts_of(before, tools), context.count)
    placed = _ordered(blocks, start, context, moving=not request.history)
    note = rank_note(placed) if context.policy.rank_note else ""
    references = reference_note(again)
    tail = tail_text(request.question, volatile=request.volatile, note=note, references=references)
    newest, ends = _newest_turn(placed, tail)
    messages = (*before, newest)
    old = ranked_behind(earlier.placed, len(request.documents))
    steps = _steps(placed, earlier, before, head, context.count) if earlier.placed else None
    layout = _finished(
        messages,
        tools,
        head=head if earlier.placed or not request.history else start,
        blocks=(*(_reranked(p, again) for p in old), *placed),
        cuts=(*((p.message + len(system), p.end) for p in old), *((len(before), e) for e in ends)),
        steps=steps or tuple(step_of(block, context.count) for block in placed),
        context=context,
    )
    layout = replace(layout, dropped=fitted.dropped, notes=_notes(fitted, earlier))
    if earlier.matched and conversation is not None:
        return replace(
            layout, predicted_tokens=_continued_tokens(layout, earlier, conversation, context)
        )
    return layout


def _system(request: Request) -> tuple[Message, ...]:
    return (Message(role="system", content=request.system),) if request.system else ()


def _fresh_blocks(
    request: Request, earlier: Continued, before: Sequence[Message], context: _Context
) -> tuple[tuple[Block, ...], tuple[Block, ...], Fit]:
    """Return the blocks to send, those that an earlier turn holds, and what did not fit."""
    taken = {p.block.label: p.block.hash for p in earlier.placed}
    blocks = make_blocks(request.documents, policy=context.policy, taken=taken)
    new, again = _split_sent(blocks, earlier, request.history)
    fitted = _fit(request, new, before, context)
    if fitted.dropped or fitted.notes:
        new = make_blocks(fitted.documents, policy=context.policy, taken=taken)
    return new, again, fitted


def _split_sent(
    blocks: Sequence[Block], earlier: Continued, history: Sequence[Message]
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Return the blocks that must be sent, and those that an earlier turn already holds."""
    if not history:
        return tuple(blocks), ()
    hashes = {p.block.hash for p in earlier.placed}
    texts = [message.text() for message in earlier.messages]
    sent = [b for b in blocks if b.hash in hashes or any(b.text in text for text in texts)]
    return tuple(block for block in blocks if block not in sent), tuple(sent)


def _reranked(placed: Placed, again: Sequence[Block]) -> Block:
    """Return an earlier block with its rank of this turn, where it was retrieved again."""
    found = next((block for block in again if block.hash == placed.block.hash), None)
    return placed.block if found is None else replace(placed.block, rank=found.rank)


def _fit(
    request: Request, blocks: Sequence[Block], before: Sequence[Message], context: _Context
) -> Fit:
    policy, count = context.policy, context.count
    if policy.window_tokens is None:
        return Fit(documents=tuple(d for block in blocks for d in block.documents))
    fixed = sum(count(message.text()) for message in before)
    fixed += count(tail_text(request.question, volatile=request.volatile))
    budget = policy.window_tokens - policy.reserve_tokens - fixed
    return fit(blocks, budget_tokens=budget, policy=policy, count=count)


def _head(parts: Sequence[Part], count: Count) -> Step:
    digest = hashlib.sha256(b"ragcache/head/1:%d" % len(parts))
    for part in parts:
        text = part.text.encode("utf-8", "surrogatepass")
        digest.update(b":%d:%b" % (len(text), text))
    return Step(key=Fingerprint(digest.hexdigest()), tokens=sum(count(part.text) for part in parts))


def _ordered(
    blocks: Sequence[Block], head: Step, context: _Context, *, moving: bool
) -> tuple[Block, ...]:
    """Return the blocks in the order of the prompt."""
    if context.wanted is not None:
        places = {key: at for at, key in enumerate(context.wanted)}
        return tuple(sorted(blocks, key=lambda b: places.get(b.hash, len(places) + b.rank)))
    items = [Item(block.hash, context.count(block.text), block.text) for block in blocks]
    tokens = head.tokens + sum(item.tokens for item in items)
    if not moving or tokens < context.policy.min_prefix_tokens:
        return tuple(blocks)
    tree = context.tree
    order = order_blocks(
        items,
        policy=context.policy,
        known=tree.known if tree is not None else None,
        start=tree.tree.root.children.get(head.key) if tree is not None else None,
        now_s=context.now_s,
    )
    return tuple(blocks[at] for at in order)


def _newest_turn(blocks: Sequence[Block], tail: str) -> tuple[Message, tuple[int, ...]]:
    """Return the newest user message, and where its blocks end in its text."""
    text, ends = "", []
    for block in blocks:
        text += block.text
        ends.append(len(text))
        text += BLOCK_SEPARATOR
    return Message(role="user", content=text + tail), tuple(ends)


def step_of(block: Block, count: Count) -> Step:
    """Return a block as a step of the prefix."""
    names = {name: None for d in block.documents for name in (d.id, d.source) if name}
    return Step(key=block.hash, tokens=count(block.text), names=tuple(names))


def _steps(
    placed: Sequence[Block],
    earlier: Continued,
    before: Sequence[Message],
    head: Step,
    count: Count,
) -> tuple[Step, ...]:
    """Return the prefix of a later turn: what stands since the last block joins the next one."""
    steps = [step_of(block, count) for block in placed]
    if steps:
        texts = [message.text() for message in before]
        sent = head.tokens + sum(step.tokens for step in earlier.steps)
        between = max(0, sum(count(text) for text in texts) - sent)
        key = fingerprint("turn", texts, steps[0].key)
        steps[0] = replace(steps[0], key=key, tokens=steps[0].tokens + between)
    return (*earlier.steps, *steps)


def _notes(fitted: Fit, earlier: Continued) -> tuple[str, ...]:
    return (*fitted.notes, earlier.cause) if earlier.cause else fitted.notes


def _continued_tokens(
    layout: Layout, earlier: Continued, conversation: Conversation, context: _Context
) -> int | None:
    """Return the tokens expected to be reused: all that the matched turns sent."""
    lifetime_s = context.tree.tree.lifetime_s if context.tree is not None else None
    if lifetime_s is not None and context.now_s - conversation.used_at_s > lifetime_s:
        return 0
    start = len(layout.messages) - 1 - len(earlier.messages)
    upto = start + max(0, earlier.matched - 1)  # the last answer may never have been an input
    return sum(context.count(message.text()) for message in layout.messages[:upto])


# --- both --------------------------------------------------------------------------------------


def _finished(
    messages: tuple[Message, ...],
    tools: tuple[JsonObject, ...],
    *,
    head: Step,
    blocks: tuple[Block, ...],
    cuts: tuple[tuple[int, int], ...],
    steps: tuple[Step, ...],
    context: _Context,
) -> Layout:
    parts = parts_of(messages, tools)
    return Layout(
        messages=messages,
        tools=tools,
        blocks=blocks,
        boundaries=boundaries_of(messages, parts, cuts),
        predicted_tokens=_reused(head, steps, context),
        plan=Plan(
            head=head,
            steps=steps,
            ranked=tuple(b.hash for b in sorted(blocks, key=lambda block: block.rank)),
            parts=parts,
            cuts=cuts,
            total_tokens=sum(context.count(part.text) for part in parts),
        ),
    )


def _reused(head: Step, steps: Sequence[Step], context: _Context) -> int:
    """Return the tokens of the prefix that the target should hold, 0 below the minimum."""
    if context.tree is None:
        return 0
    tree, tokens = context.tree.tree, 0
    for node in tree.find((head.key, *(step.key for step in steps))):
        if not tree.alive(node, context.now_s):
            break
        tokens += node.tokens
    return tokens if tokens >= context.policy.min_prefix_tokens else 0


def remembered(
    request: Request,
    layout: Layout,
    answer: Message,
    *,
    now_s: float = 0.0,
) -> Conversation | None:
    """Return the state of a conversation after its newest turn was answered.

    None for a prompt that somebody else formatted: its turns are theirs.
    """
    plan = layout.plan
    if request.formatted is not None or not isinstance(plan, Plan):
        return None
    system = len(_system(request))
    placed = tuple(
        Placed(block=block, message=message - system, end=end)
        for block, (message, end) in zip(layout.blocks, plan.cuts, strict=True)
    )
    head = _head(parts_of(layout.messages[:system], layout.tools), len).key
    return extended(
        request,
        head=head,
        sent=layout.messages[system:],
        placed=placed,
        steps=plan.steps,
        answer=answer,
        now_s=now_s,
    )


# --- somebody else's prompt --------------------------------------------------------------------


def _foreign(request: Request, formatted: Formatted, context: _Context) -> Layout:
    tools = canonical_tools(request.tools)
    reason = why_unchanged(formatted, len(request.documents))
    if reason or not formatted.blocks:
        head = _head(parts_of(formatted.messages, tools), context.count)
        layout = _finished(
            formatted.messages, tools, head=head, blocks=(), cuts=(), steps=(), context=context
        )
        return replace(layout, notes=(f"sent unchanged: {reason}",) if reason else ())
    blocks = _foreign_blocks(formatted, request.documents)
    ahead = parts_of(formatted.messages[: formatted.index], tools)
    head = _head((*ahead, Part(name="head", text=formatted.head)), context.count)
    placed = _ordered(blocks, head, context, moving=True)
    return _finished(
        moved(formatted, [block.rank for block in placed]),
        tools,
        head=head,
        blocks=placed,
        cuts=cuts_of(formatted, [block.text for block in placed]),
        steps=tuple(step_of(block, context.count) for block in placed),
        context=context,
    )


def _foreign_blocks(formatted: Formatted, documents: Sequence[Document]) -> tuple[Block, ...]:
    """Return the located blocks. They carry no label: their format is somebody else's.

    Documents beyond the blocks stand elsewhere in the prompt, where they stay.
    """
    seen: dict[str, int] = {}
    blocks = []
    for rank, (text, document) in enumerate(zip(formatted.blocks, documents, strict=False)):
        copy = seen.get(text, 0)
        seen[text] = copy + 1
        key = content_hash(text) if not copy else fingerprint(text, copy)
        blocks.append(Block(label=Label(""), text=text, hash=key, documents=(document,), rank=rank))
    return tuple(blocks)
