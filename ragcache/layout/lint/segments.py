"""Where the documents stand in a recorded prompt, named by the log or found by repetition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .records import Record

#: A paragraph shorter than this is not taken for a document.
_LEAST = 60
#: Characters in front of a document that may be its label.
_FRAME = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedBlock:
    """A document in a prompt. `frame` is the label in front of it, `extra` what follows."""

    text: str
    start: int
    frame: str = ""
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The documents of a recorded prompt in printed order. `before` stands in front of them."""

    record: Record
    blocks: tuple[LocatedBlock, ...]
    before: str


def locate(record: Record, records: Sequence[Record]) -> Located:
    """Return where the documents of a request stand."""
    prompt = record.prompt
    texts = [document.text for document in record.documents if document.text.strip()]
    if not texts:
        texts = _repeated(prompt, _paragraph_counts(tuple(r.prompt for r in records)))
    starts = sorted({(at, text) for text in texts if (at := prompt.find(text)) >= 0})
    blocks = []
    end = _last_message(prompt)
    for number, (start, text) in enumerate(starts):
        following = starts[number + 1][0] if number + 1 < len(starts) else start + len(text)
        frame = prompt[max(end, start - _FRAME) : start]
        end = start + len(text)
        extra = prompt[end : min(following, end + _FRAME)]
        blocks.append(LocatedBlock(text=text, start=start, frame=_last_lines(frame), extra=extra))
    first = blocks[0].start - len(blocks[0].frame) if blocks else 0
    return Located(record=record, blocks=tuple(blocks), before=prompt[:first])


def _last_message(prompt: str) -> int:
    return 0 if not prompt else max(0, prompt.find("<|"))


def _last_lines(frame: str) -> str:
    """Return the last two lines in front of a document: its label is there or nowhere."""
    return "\n".join(frame.split("\n")[-2:])


@lru_cache(maxsize=4)
def _paragraph_counts(prompts: tuple[str, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for prompt in prompts:
        for paragraph in set(_paragraphs(prompt)):
            counts[paragraph] = counts.get(paragraph, 0) + 1
    return counts


def _paragraphs(prompt: str) -> list[str]:
    found = []
    for piece in re.split(r"\n\s*\n|\n(?=\[\d)|\n(?=<\|)", prompt):
        text = re.sub(r"^\s*(?:<[^>\n]*>\s*|\[[^\]\n]{1,20}\]\s*(?:\([^)\n]*\)\s*)?)+", "", piece)
        text = re.sub(r"\s*</[^>\n]*>\s*$", "", text).strip()
        if len(text) >= _LEAST:
            found.append(text)
    return found


def _repeated(prompt: str, counts: dict[str, int]) -> list[str]:
    """Return the paragraphs that some other requests hold too, but not nearly all of them."""
    most = max(counts.values(), default=0)
    return [
        text
        for text in dict.fromkeys(_paragraphs(prompt))
        if counts.get(text, 0) >= 2 and counts[text] < max(3, most)
    ]
