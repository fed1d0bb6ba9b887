"""Blocks that end where the engine's KV blocks end.

An engine finds whole KV blocks only (vLLM, docs/design/prefix_caching.md): where two prompts part,
the tokens of their last common KV block are computed again, half of one on average. Padding saves
those, and costs as much in every block that is not found; so it is off unless asked for, and
`ragcache bench layout --block-size` measures what it gives on a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..types import Block
from .plan import Count
from .policy import LayoutPolicy
from .render import BLOCK_SEPARATOR

#: What most tokenizers make exactly one token of, however often it stands.
_FILLER = " ."
#: Where tokens merge all the same, the padding is corrected so often.
_TRIES = 4


def aligned(blocks: Sequence[Block], *, policy: LayoutPolicy, count: Count) -> tuple[Block, ...]:
    """Return the blocks, each padded with its separator to whole KV blocks of tokens.

    The padding depends on the block alone, so it is the same behind every neighbour. A block that
    its tokenizer cannot bring to a whole number stays as it is.

    Args:
        blocks: As made.
        policy: `align_blocks` and `block_size`.
        count: Counts tokens exactly as the engine does.
    """
    size = policy.block_size
    if not policy.align_blocks or size is None:
        return tuple(blocks)
    return tuple(replace(block, text=_padded(block.text, size, count)) for block in blocks)


def _padded(text: str, size: int, count: Count) -> str:
    fillers = 0
    for _ in range(_TRIES):
        padded = f"{text}\n{_FILLER * fillers}" if fillers else text
        over = count(padded + BLOCK_SEPARATOR) % size
        if not over:
            return padded
        fillers += -over if fillers > over else size - over
    return text
