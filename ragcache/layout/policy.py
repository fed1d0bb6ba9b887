"""What a team may choose about the arrangement of its prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import ConfigError

Ordering = Literal["prefix_tree", "sorted", "retrieved"]
#: planned: where the expected saving pays for the write. always: also behind the last block,
#: for traffic that is known to repeat. off: the caller's marks only.
MarkMode = Literal["planned", "always", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutPolicy:
    """How prompts are arranged. Defaults reuse the most; every limit costs some reuse.

    Args:
        ordering: `prefix_tree` walks the recently sent block sequences for the path that reuses
            the most tokens; `sorted` needs no state; `retrieved` moves nothing.
        pin_top: So many best-ranked blocks stand last, nearest the question, best one last.
        max_displacement: No block stands further than this from its retrieval rank.
        rank_note: Tell the model the retrieval order behind the blocks, where blocks were moved.
        normalise_newlines: Unify newlines of document text and cut trailing blanks, so that two
            spellings of the same text are one block.
        metadata_keys: Metadata printed in a block, in this order. Only what stays when the same
            text is ingested again belongs here: no date of access, no score.
        print_source: Print the document's source in its block.
        label_digits: Length of a label before it is lengthened because of a collision.
        window_tokens: The model's context window; None leaves the size unchecked.
        reserve_tokens: Kept free for the answer.
        block_overhead_tokens: Added to each block's own count: separators, template marks.
        cut_oversized: Cut a document that alone exceeds the window, instead of refusing.
        min_prefix_tokens: A prefix shorter than this is not worth ordering, counting or marking.
        block_size: The engine's KV block size in tokens, read from the engine; with `align_blocks`
            each block is padded to whole KV blocks.
        align_blocks: Pad blocks to `block_size`; needs an exact token count, and seldom pays
            (docs/benchmarks.md).
        marks: Where prompts are marked for providers that find only what was marked.
        marks_ttl_s: The lifetime that marks ask for, in seconds; the provider's default for None.
        max_visits: How many nodes one walk may look at before it takes the best path so far.
    """

    ordering: Ordering = "prefix_tree"
    pin_top: int = 0
    max_displacement: int | None = None
    rank_note: bool = True
    normalise_newlines: bool = True
    metadata_keys: tuple[str, ...] = ("title", "section", "page")
    print_source: bool = True
    label_digits: int = 5
    window_tokens: int | None = None
    reserve_tokens: int = 0
    block_overhead_tokens: int = 0
    cut_oversized: bool = False
    min_prefix_tokens: int = 32
    block_size: int | None = None
    align_blocks: bool = False
    marks: MarkMode = "planned"
    marks_ttl_s: int | None = None
    max_visits: int = 1000

    def __post_init__(self) -> None:
        if self.ordering not in ("prefix_tree", "sorted", "retrieved"):
            raise ConfigError(
                f"layout ordering {self.ordering!r} is unknown: "
                "use prefix_tree, sorted or retrieved"
            )
        if self.marks not in ("planned", "always", "off"):
            raise ConfigError(f"layout marks {self.marks!r} is unknown: use planned, always or off")
        _not_negative(self, "pin_top", "reserve_tokens", "block_overhead_tokens")
        _not_negative(self, "min_prefix_tokens", "max_displacement")
        _positive(self, "label_digits", "max_visits", "window_tokens", "block_size")
        _positive(self, "marks_ttl_s")
        if self.align_blocks and self.block_size is None:
            raise ConfigError("align_blocks needs block_size, the engine's KV block size in tokens")


def _not_negative(policy: LayoutPolicy, *names: str) -> None:
    for name in names:
        value = getattr(policy, name)
        if value is not None and value < 0:
            raise ConfigError(f"layout {name} is {value}: it must not be negative")


def _positive(policy: LayoutPolicy, *names: str) -> None:
    for name in names:
        value = getattr(policy, name)
        if value is not None and value < 1:
            raise ConfigError(f"layout {name} is {value}: it must be at least 1")
