"""From a request to what is sent: stable text first, then blocks, then what varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..keys import content_hash, fingerprint
from ..types import Block, Document, Fingerprint, Formatted, Label, Layout, Message, Request
from .blocks import make_blocks
from .canonical import canonical_tools
from .foreign import moved, text_of, why_unchanged
from .forest import GroupTree
from .ordering import Item, order_blocks
from .plan import Count, Part, Plan, Step, quarter_of_characters
from .policy import LayoutPolicy
from .render import BLOCK_SEPARATOR, opening, parts_of, rank_note, reference_note, tail_text
from .window import Fit, fit

DEFAULT_POLICY = LayoutPolicy()


def arrange(
    request: Request,
    *,
    policy: LayoutPolicy = DEFAULT_POLICY,
    tree: GroupTree | None = None,
    count: Count = quarter_of_characters,
    now_s: float = 0.0,
) -> Layout:
    """Return the request arranged so that as much as possible of it was sent before.

    Args:
        request: What is asked, with its documents in retrieval order.
        policy: How to arrange.
        tree: What was sent before in this trust group; None knows nothing.
        count: Counts tokens as the target does; the default estimates.
        now_s: The clock, in seconds, that the tree's lifetimes are measured by.

    Raises:
        PromptTooLargeError: No document fits the window, and cutting is not allowed.
    """
    if request.formatted is not None:
        return _foreign(request, request.formatted, policy, tree, count, now_s)
    return _own(request, policy, tree, count, now_s)


# --- our own prompt ----------------------------------------------------------------------------


def _own(
    request: Request, policy: LayoutPolicy, tree: GroupTree | None, count: Count, now_s: float
) -> Layout:
    tools = canonical_tools(request.tools)
    before = _before(request)
    blocks = make_blocks(request.documents, policy=policy)
    fresh, sent = _split_sent(blocks, request.history)
    fitted = _fit(request, fresh, before, policy, count)
    fresh = (
        make_blocks(fitted.documents, policy=policy) if fitted.dropped or fitted.notes else fresh
    )
    head = _head(parts_of(before, tools), count)
    placed, reused = _place(fresh, head, policy, tree, count, now_s, moving=not request.history)
    note = rank_note(placed) if policy.rank_note else ""
    tail = tail_text(
        request.question, volatile=request.volatile, note=note, references=reference_note(sent)
    )
    last, cuts = _newest_turn(placed, tail, at=len(before))
    messages = (*before, last)
    return _layout(messages, tools, placed, fitted, head, cuts, count, reused=reused)


def _before(request: Request) -> tuple[Message, ...]:
    system = (Message(role="system", content=request.system),) if request.system else ()
    return (*system, *request.history)


def _split_sent(
    blocks: Sequence[Block], history: Sequence[Message]
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Return the blocks that must be sent, and those that an earlier turn already holds."""
    if not history:
        return tuple(blocks), ()
    texts = [message.text() for message in history]
    sent = [block for block in blocks if any(block.text in text for text in texts)]
    return tuple(block for block in blocks if block not in sent), tuple(sent)


def _fit(
    request: Request,
    blocks: Sequence[Block],
    before: Sequence[Message],
    policy: LayoutPolicy,
    count: Count,
) -> Fit:
    if policy.window_tokens is None:
        return Fit(documents=tuple(d for block in blocks for d in block.documents))
    fixed = sum(count(message.text()) for message in before)
    fixed += count(tail_text(request.question, volatile=request.volatile))
    budget = policy.window_tokens - policy.reserve_tokens - fixed
    return fit(blocks, budget_tokens=budget, policy=policy, count=count)


def _head(parts: Sequence[Part], count: Count) -> Step:
    texts = [part.text for part in parts]
    return Step(key=fingerprint("head", texts), tokens=sum(count(text) for text in texts))


def _place(
    blocks: Sequence[Block],
    head: Step,
    policy: LayoutPolicy,
    tree: GroupTree | None,
    count: Count,
    now_s: float,
    *,
    moving: bool,
) -> tuple[tuple[Block, ...], int]:
    """Return the blocks in the order of the prompt, and the tokens expected to be reused."""
    items = [Item(block.hash, count(block.text), block.text) for block in blocks]
    if moving and head.tokens + sum(item.tokens for item in items) >= policy.min_prefix_tokens:
        order = _order(items, head, policy, tree, now_s)
    else:
        order = tuple(range(len(items)))
    placed = tuple(blocks[at] for at in order)
    return placed, reused_tokens(tree, (head.key, *(b.hash for b in placed)), policy, now_s)


def _order(
    items: Sequence[Item],
    head: Step,
    policy: LayoutPolicy,
    tree: GroupTree | None,
    now_s: float,
) -> tuple[int, ...]:
    if tree is None:
        return order_blocks(items, policy=policy)
    return order_blocks(
        items,
        policy=policy,
        known=tree.known,
        start=tree.tree.root.children.get(head.key),
        now_s=now_s,
    )


def reused_tokens(
    tree: GroupTree | None, keys: Sequence[Fingerprint], policy: LayoutPolicy, now_s: float
) -> int:
    """Return the tokens of a prefix that the target is expected to hold, 0 below the minimum."""
    if tree is None:
        return 0
    tokens = 0
    for node in tree.tree.find(keys):
        if not tree.tree.alive(node, now_s):
            break
        tokens += node.tokens
    return tokens if tokens >= policy.min_prefix_tokens else 0


def _newest_turn(
    blocks: Sequence[Block], tail: str, *, at: int
) -> tuple[Message, tuple[tuple[int, int], ...]]:
    """Return the newest user message, and where its blocks end in its text."""
    text, cuts = "", []
    for block in blocks:
        text += block.text + BLOCK_SEPARATOR
        cuts.append((at, len(text)))
    return Message(role="user", content=text + tail), tuple(cuts)


def _layout(
    messages: tuple[Message, ...],
    tools: tuple[object, ...],
    blocks: tuple[Block, ...],
    fitted: Fit,
    head: Step,
    cuts: tuple[tuple[int, int], ...],
    count: Count,
    *,
    reused: int,
) -> Layout:
    return Layout(
        messages=messages,
        tools=tools,  # type: ignore[arg-type]  # canonical tools are plain objects
        blocks=blocks,
        dropped=fitted.dropped,
        boundaries=boundaries_of(messages, tools, cuts),  # type: ignore[arg-type]  # as above
        notes=fitted.notes,
        predicted_tokens=reused,
        plan=Plan(
            head=head,
            steps=tuple(_step(block, count) for block in blocks),
            ranked=tuple(b.hash for b in sorted(blocks, key=lambda block: block.rank)),
            parts=parts_of(messages, tools),  # type: ignore[arg-type]  # as above
            cuts=cuts,
        ),
    )


def _step(block: Block, count: Count) -> Step:
    names = dict.fromkeys(name for document in block.documents for name in document.names)
    return Step(key=block.hash, tokens=count(block.text), names=tuple(names))


def boundaries_of(
    messages: Sequence[Message],
    tools: Sequence[dict[str, object]],
    cuts: Sequence[tuple[int, int]],
) -> tuple[int, ...]:
    """Return the offsets in the rendered prompt behind the head and behind each block."""
    starts, at = [], len("".join(p.text for p in parts_of((), tools)))
    head = at
    for message in messages:
        starts.append(at + len(f"<|{message.role}|>\n"))
        at += len(opening(message))
        if message.role == "system" and len(starts) == 1:
            head = at
    return (head, *(starts[index] + offset for index, offset in cuts))


# --- somebody else's prompt --------------------------------------------------------------------


def _foreign(
    request: Request,
    formatted: Formatted,
    policy: LayoutPolicy,
    tree: GroupTree | None,
    count: Count,
    now_s: float,
) -> Layout:
    tools = canonical_tools(request.tools)
    reason = why_unchanged(formatted, len(request.documents))
    if reason or not formatted.blocks:
        head = _head(parts_of(formatted.messages, tools), count)
        notes = (f"sent unchanged: {reason}",) if reason else ()
        layout = _layout(
            formatted.messages, tools, (), Fit(documents=()), head, (), count, reused=0
        )
        return replace(layout, blocks=_standing(request.documents), notes=notes)
    return _moved(request, formatted, policy, tree, count, now_s)


def _moved(
    request: Request,
    formatted: Formatted,
    policy: LayoutPolicy,
    tree: GroupTree | None,
    count: Count,
    now_s: float,
) -> Layout:
    tools = canonical_tools(request.tools)
    known = len(formatted.blocks)
    blocks = _foreign_blocks(formatted, request.documents[:known])
    ahead = parts_of(formatted.messages[: formatted.index], tools)
    head = _head((*ahead, Part(name="head", text=formatted.head)), count)
    placed, reused = _place(blocks, head, policy, tree, count, now_s, moving=True)
    messages = moved(formatted, [block.rank for block in placed])
    cuts = _foreign_cuts(formatted, placed)
    layout = _layout(messages, tools, placed, Fit(documents=()), head, cuts, count, reused=reused)
    rest = _standing(request.documents[known:], first=known)
    return replace(layout, blocks=(*layout.blocks, *rest)) if rest else layout


def _standing(documents: Sequence[Document], *, first: int = 0) -> tuple[Block, ...]:
    """Return documents that stay where they stand in the prompt: an answer rests on them too."""
    return tuple(
        Block(
            label=Label(""),
            text=document.text,
            hash=content_hash(document.text),
            documents=(document,),
            rank=rank,
        )
        for rank, document in enumerate(documents, first)
    )


def _foreign_blocks(formatted: Formatted, documents: Sequence[Document]) -> tuple[Block, ...]:
    """Return the located blocks. They carry no label: their format is somebody else's."""
    seen: dict[str, int] = {}
    blocks = []
    for rank, (text, document) in enumerate(zip(formatted.blocks, documents, strict=True)):
        copy = seen.get(text, 0)
        seen[text] = copy + 1
        key = content_hash(text) if not copy else fingerprint(text, copy)
        blocks.append(Block(label=Label(""), text=text, hash=key, documents=(document,), rank=rank))
    return tuple(blocks)


def _foreign_cuts(formatted: Formatted, blocks: Sequence[Block]) -> tuple[tuple[int, int], ...]:
    message = formatted.messages[formatted.index]
    at = 0
    if formatted.part is not None:
        texts = [str(p.get("text", "")) for p in message.content[: formatted.part]]  # type: ignore[union-attr]  # a part means parts
        at = sum(len(text) for text in texts)
    at += len(formatted.head)
    cuts = []
    for number, block in enumerate(blocks):
        at += len(block.text) + (len(formatted.separator) if number < len(blocks) - 1 else 0)
        cuts.append((formatted.index, at))
    return tuple(cuts)


__all__ = ["DEFAULT_POLICY", "arrange", "boundaries_of", "reused_tokens", "text_of"]
