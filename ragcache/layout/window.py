"""Contexts that are too long: whole blocks go, from the low-ranked end, and it is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import PromptTooLargeError
from ..types import Block, Document
from .plan import Count
from .policy import LayoutPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The documents that fit, in retrieval order, and those that do not."""

    documents: tuple[Document, ...]
    dropped: tuple[Document, ...] = ()
    notes: tuple[str, ...] = ()


def fit(blocks: Sequence[Block], *, budget_tokens: int, policy: LayoutPolicy, count: Count) -> Fit:
    """Return which documents stay within the budget.

    A block that alone exceeds it can never be sent: it is left out, or cut where the policy
    allows, and the next are tried. From the first block that no longer fits, all are dropped.

    Raises:
        PromptTooLargeError: Nothing would be left, and cutting is not allowed.
    """
    kept: list[Document] = []
    dropped: list[Document] = []
    notes: list[str] = []
    left, full = budget_tokens, False
    for block in blocks:
        tokens = count(block.text) + policy.block_overhead_tokens
        if tokens > budget_tokens and policy.cut_oversized and not kept:
            shorter, tokens = _cut(block, budget_tokens, policy, count)
            kept.append(shorter)
            notes.append(f"document {block.rank + 1} was cut to fit the window")
            left -= tokens
        elif tokens > budget_tokens:
            dropped.extend(block.documents)
        elif full or tokens > left:
            full = True
            dropped.extend(block.documents)
        else:
            kept.extend(block.documents)
            left -= tokens
    if blocks and not kept:
        raise PromptTooLargeError(
            f"no document fits: {budget_tokens} tokens are left for documents beside system, "
            f"history and question; split the documents, or set cut_oversized"
        )
    if dropped:
        notes.append(f"{len(dropped)} documents did not fit the window and were dropped")
    return Fit(documents=tuple(kept), dropped=tuple(dropped), notes=tuple(notes))


def _cut(
    block: Block, budget_tokens: int, policy: LayoutPolicy, count: Count
) -> tuple[Document, int]:
    """Return the document shortened to the longest start, in whole words, that fits."""
    document = block.documents[0]
    words = document.text.split(" ")
    frame = count(block.text) - count(document.text) + policy.block_overhead_tokens
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        if count(" ".join(words[:middle])) + frame <= budget_tokens:
            low = middle
        else:
            high = middle - 1
    text = " ".join(words[:low])
    return replace(document, text=text), count(text) + frame
