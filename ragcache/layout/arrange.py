"""From a request to what is sent: stable text first, then blocks, then what varies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..keys import fingerprint
from ..types import Block, Fingerprint, Layout, Message, Request
from .alignment import aligned
from .assembly import Context, finished, head_of, ordered, step_of
from .blocks import make_blocks
from .canonical import canonical_tools
from .conversation import Continued, Conversation, Placed, continued, extended, ranked_behind
from .foreign import foreign_layout
from .forest import GroupTree
from .plan import Count, Plan, Step, quarter_of_characters
from .policy import LayoutPolicy
from .render import BLOCK_SEPARATOR, parts_of, rank_note, reference_note, tail_text
from .window import Fit, fit

DEFAULT_POLICY = LayoutPolicy()


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
    context = Context(policy=policy, tree=tree, count=count, now_s=now_s, wanted=wanted)
    if request.formatted is not None:
        return foreign_layout(request, request.formatted, context)
    return _own(request, context, conversation)


# --- our own prompt ----------------------------------------------------------------------------


def _own(request: Request, context: Context, conversation: Conversation | None) -> Layout:
    tools = canonical_tools(request.tools)
    system = _system(request)
    head = head_of(parts_of(system, tools), context.count)
    earlier = continued(request.history, conversation, head.key)
    before = (*system, *earlier.messages)
    blocks, again, fitted = _fresh_blocks(request, earlier, before, context)
    start = head if not before[len(system) :] else head_of(parts_of(before, tools), context.count)
    placed = ordered(blocks, start, context, moving=not request.history)
    note = rank_note(placed) if context.policy.rank_note else ""
    references = reference_note(again)
    tail = tail_text(request.question, volatile=request.volatile, note=note, references=references)
    newest, ends = _newest_turn(placed, tail)
    messages = (*before, newest)
    old = ranked_behind(earlier.placed, len(request.documents))
    steps = _steps(placed, earlier, before, head, context) if earlier.placed else None
    layout = finished(
        messages,
        tools,
        head=head if earlier.placed or not request.history else start,
        blocks=(*(_reranked(p, again) for p in old), *placed),
        cuts=(*((p.message + len(system), p.end) for p in old), *((len(before), e) for e in ends)),
        steps=steps or tuple([step_of(block, context) for block in placed]),
        context=context,
        tail=tail,
        dropped=fitted.dropped,
        notes=_notes(fitted, earlier),
    )
    if earlier.matched and conversation is not None:
        return replace(
            layout, predicted_tokens=_continued_tokens(layout, earlier, conversation, context)
        )
    return layout


def _system(request: Request) -> tuple[Message, ...]:
    return (Message(role="system", content=request.system),) if request.system else ()


def _fresh_blocks(
    request: Request, earlier: Continued, before: Sequence[Message], context: Context
) -> tuple[tuple[Block, ...], tuple[Block, ...], Fit]:
    """Return the blocks to send, those that an earlier turn holds, and what did not fit."""
    taken = {p.block.label: p.block.hash for p in earlier.placed}
    blocks = make_blocks(request.documents, policy=context.policy, taken=taken)
    new, again = _split_sent(blocks, earlier, request.history)
    fitted = _fit(request, new, before, context)
    if fitted.dropped or fitted.notes:
        new = make_blocks(fitted.documents, policy=context.policy, taken=taken)
    return aligned(new, policy=context.policy, count=context.count), again, fitted


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
    request: Request, blocks: Sequence[Block], before: Sequence[Message], context: Context
) -> Fit:
    policy, count = context.policy, context.count
    if policy.window_tokens is None:
        return Fit(documents=tuple([d for block in blocks for d in block.documents]))
    fixed = sum(count(message.text()) for message in before)
    fixed += count(tail_text(request.question, volatile=request.volatile))
    budget = policy.window_tokens - policy.reserve_tokens - fixed
    return fit(blocks, budget_tokens=budget, policy=policy, count=count)


def _newest_turn(blocks: Sequence[Block], tail: str) -> tuple[Message, tuple[int, ...]]:
    """Return the newest user message, and where its blocks end in its text."""
    text, ends = "", []
    for block in blocks:
        text += block.text
        ends.append(len(text))
        text += BLOCK_SEPARATOR
    return Message(role="user", content=text + tail), tuple(ends)


def _steps(
    placed: Sequence[Block],
    earlier: Continued,
    before: Sequence[Message],
    head: Step,
    context: Context,
) -> tuple[Step, ...]:
    """Return the prefix of a later turn: what stands since the last block joins the next one."""
    steps = [step_of(block, context) for block in placed]
    if steps:
        texts = [message.text() for message in before]
        sent = head.tokens + sum(step.tokens for step in earlier.steps)
        between = max(0, sum(context.count(text) for text in texts) - sent)
        key = fingerprint("turn", texts, steps[0].key)
        steps[0] = steps[0]._replace(key=key, tokens=steps[0].tokens + between)
    return (*earlier.steps, *steps)


def _notes(fitted: Fit, earlier: Continued) -> tuple[str, ...]:
    return (*fitted.notes, earlier.cause) if earlier.cause else fitted.notes


def _continued_tokens(
    layout: Layout, earlier: Continued, conversation: Conversation, context: Context
) -> int | None:
    """Return the tokens expected to be reused: all that the matched turns sent."""
    lifetime_s = context.tree.tree.lifetime_s if context.tree is not None else None
    if lifetime_s is not None and context.now_s - conversation.used_at_s > lifetime_s:
        return 0
    start = len(layout.messages) - 1 - len(earlier.messages)
    upto = start + max(0, earlier.matched - 1)  # the last answer may never have been an input
    return sum(context.count(message.text()) for message in layout.messages[:upto])


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
    head = head_of(parts_of(layout.messages[:system], layout.tools), len).key
    return extended(
        request,
        head=head,
        sent=layout.messages[system:],
        placed=placed,
        steps=plan.steps,
        answer=answer,
        now_s=now_s,
    )
