"""Two recorded requests side by side: the first byte that differs, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..difference import common_bytes
from .findings import hidden
from .records import Record, rendered

_CLOCK = re.compile(
    r"\d{4}-\d{2}-\d{2}|\d{1,2}:\d{2}(:\d{2})?|\b1[6-9]\d{8}(\d{3})?\b"
    r"|\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? \d|\b\d{1,2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep"
    r"|Oct|Nov|Dec)|\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w* \d{1,2}\b"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}|\b[0-9a-fA-F]{24,}\b")
_SIDE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordDifference:
    """The first difference of two recorded requests.

    Args:
        part: "tools", "system", "user message 2", ...
        offset: Bytes from the start of that part.
        at: Bytes from the start of the prompt: so much is a common prefix.
        cause: Rule that explains it, empty where none does.
        before: A short piece of the first request around the place, long words cut.
        after: The same of the second.
        caret: Column of the difference in `before` and `after`.
    """

    part: str
    offset: int
    at: int
    cause: str
    before: str
    after: str
    caret: int

    def __str__(self) -> str:
        """Return the difference with a caret under its first character."""
        cause = f" ({self.cause})" if self.cause else ""
        return (
            f"first difference: {self.part}, byte {self.offset}{cause}; "
            f"common prefix {self.at} bytes\n"
            f"  - {self.before}\n  + {self.after}\n    {' ' * self.caret}^"
        )

    def plain(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return {
            "part": self.part,
            "offset": self.offset,
            "common_prefix_bytes": self.at,
            "cause": self.cause,
            "before": self.before,
            "after": self.after,
            "caret": self.caret,
        }


def parts_of(record: Record) -> list[tuple[str, str]]:
    """Return the named pieces of a recorded prompt."""
    parts = [("tools", record.tools)] if record.tools else []
    counts: dict[str, int] = {}
    for text in record.texts:
        counts[text.role] = counts.get(text.role, 0) + 1
        number = f" {counts[text.role]}" if counts[text.role] > 1 else ""
        name = "system message" if text.role == "system" else f"{text.role} message"
        parts.append((f"{name}{number}", text.text))
    return parts


def diff_records(before: Record, after: Record) -> RecordDifference | None:
    """Return the first difference, None where the prompts are the same bytes."""
    at = 0
    ones, others = parts_of(before), parts_of(after)
    for (name, one), (other_name, other) in zip(ones, others, strict=False):
        if one != other or name != other_name:
            return _difference(before, after, other_name, one, other, at)
        at += len(one.encode("utf-8", "surrogatepass"))
    if len(ones) == len(others):
        return None
    name = (others if len(others) > len(ones) else ones)[min(len(ones), len(others))][0]
    return _difference(before, after, name, "", "", at)


def _difference(
    before: Record, after: Record, part: str, one: str, other: str, at: int
) -> RecordDifference:
    one_bytes = one.encode("utf-8", "surrogatepass")
    other_bytes = other.encode("utf-8", "surrogatepass")
    offset = common_bytes(one_bytes, other_bytes)
    place = len(one_bytes[:offset].decode("utf-8", "ignore"))
    left = hidden(one[max(0, place - _SIDE) : place], most=2 * _SIDE)
    return RecordDifference(
        part=part,
        offset=offset,
        at=at + offset,
        cause=cause_of(before, after, part, one, other, place),
        before=left + hidden(one[place : place + _SIDE]),
        after=left + hidden(other[place : place + _SIDE]),
        caret=len(left),
    )


def cause_of(before: Record, after: Record, part: str, one: str, other: str, place: int) -> str:
    """Return the rule that explains a difference, empty where none does."""
    if part == "tools":
        return _tools_cause(before, after)
    if "".join(one.split()) == "".join(other.split()):
        return "whitespace"
    window = slice(max(0, place - 24), place + 24)
    for rule, pattern in (("uuid", _UUID), ("clock", _CLOCK)):
        if _covers(pattern, one, window, place) and _covers(pattern, other, window, place):
            return rule
    return "json_order" if _same_json(one, other) else ""


def _covers(pattern: re.Pattern[str], text: str, window: slice, place: int) -> bool:
    found = pattern.finditer(text[window])
    return any(window.start + m.start() <= place <= window.start + m.end() for m in found)


def _tools_cause(before: Record, after: Record) -> str:
    ones = [json.dumps(tool, sort_keys=True) for tool in before.body.get("tools") or []]
    others = [json.dumps(tool, sort_keys=True) for tool in after.body.get("tools") or []]
    if ones == others:
        return "json_order"
    return "tool_order" if sorted(ones) == sorted(others) else ""


def _same_json(one: str, other: str) -> bool:
    """Return whether two texts hold the same JSON objects with keys in another order."""
    return _normal_json(one) == _normal_json(other) != ""


def _normal_json(text: str) -> str:
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return ""
    try:
        inner = json.dumps(json.loads(text[start : end + 1]), sort_keys=True)
    except json.JSONDecodeError:
        return ""
    return text[:start] + inner + text[end + 1 :]


def common_prefix(one: Record, other: Record) -> int:
    """Return the length of the common prefix of two prompts, in characters."""
    before, after = one.prompt, other.prompt
    common = common_bytes(
        before.encode("utf-8", "surrogatepass"), after.encode("utf-8", "surrogatepass")
    )
    return len(before.encode("utf-8", "surrogatepass")[:common].decode("utf-8", "ignore"))


def varying(text: str) -> str:
    """Return the rule of the first clock value or id in a text, empty where there is none."""
    for rule, pattern in (("uuid", _UUID), ("clock", _CLOCK)):
        if pattern.search(text):
            return rule
    return ""


def rendered_texts(texts: Sequence[Any]) -> str:
    """Return parts as they stand in the prompt."""
    return "".join(rendered(text) for text in texts)
