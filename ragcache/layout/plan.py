"""What a layout knows beyond its bytes: which prefix it is, and where it may be cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ..types import Fingerprint

#: Counts the tokens of a text.
Count: TypeAlias = Callable[[str], int]


def quarter_of_characters(text: str) -> int:
    """Return an estimate of the tokens of a text: a quarter of its characters."""
    return len(text) // 4


class Step(NamedTuple):
    """One piece of a prompt's prefix: the head, a block, or a turn of the conversation.

    `key` identifies its bytes, `names` the documents whose change makes it worthless.
    """

    key: Fingerprint
    tokens: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A named piece of the rendered prompt, for the comparison with the previous one.

    The first `mark` bytes of `text` are the rendering's own role mark.
    """

    name: str
    text: str
    mark: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the trees remember once the prompt was sent.

    Args:
        head: Tools, system and everything else that stands before the first block.
        steps: The blocks in the order of the prompt.
        ranked: Keys of the same blocks in retrieval order.
        names: Of the documents in each of these blocks.
        parts: The stable pieces of the prompt in order, with their names.
        cuts: For each boundary the message it lies in and the offset in that message's text.
        total_tokens: Length of the whole prompt.
    """

    head: Step
    steps: tuple[Step, ...] = ()
    ranked: tuple[Fingerprint, ...] = ()
    names: Mapping[Fingerprint, tuple[str, ...]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    cuts: tuple[tuple[int, int], ...] = ()
    total_tokens: int = 0
