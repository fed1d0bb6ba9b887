"""The code blocks of a Markdown page, and the commands in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "README.zh-CN.md",
    "CONTRIBUTING.md",
    "examples/observability/README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S)
_INLINE = re.compile(r"`(ragcache [a-z][^`]*)`")
#: Indented code of pages that use no fences for it.
_INDENTED = re.compile(r"^    (ragcache .+)$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line it begins on, its language and text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """The commands of a shell block: comments cut, continued lines joined."""
        joined = self.text.replace("\\\n", " ")
        lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
        return [" ".join(line.split()) for line in lines if line]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> Iterator[Block]:
    text = text_of(page)
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found["language"], textwrap.dedent(found["text"]))


def mentioned(page: str) -> set[str]:
    """Commands of ours outside fenced blocks."""
    text = _FENCE.sub("", text_of(page))
    found = _INLINE.findall(text) + _INDENTED.findall(text)
    return {" ".join(command.split()) for command in found}
