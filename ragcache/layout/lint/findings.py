"""What the linter reports, and how it is printed: a place, a rule, a sentence, a remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]

#: Every rule: its severity, what is wrong, what to do.
RULES: dict[str, tuple[Severity, str, str]] = {
    "clock": (
        "error",
        "a clock value stands before text that could be reused",
        "pass it as volatile, so that it stands behind the documents",
    ),
    "uuid": (
        "error",
        "a random id stands before text that could be reused",
        "leave it out, or pass it as volatile",
    ),
    "random": (
        "error",
        "a value that differs by process or call stands before text that could be reused",
        "use a fixed value, or pass it as volatile",
    ),
    "json_order": (
        "warning",
        "JSON without sorted keys: its bytes depend on the order of insertion",
        "json.dumps(..., sort_keys=True)",
    ),
    "set_order": (
        "error",
        "the order of a set differs from process to process",
        "sorted(...) before joining",
    ),
    "tool_order": (
        "error",
        "the same tools in another order are another prefix",
        "sort the tools by name",
    ),
    "whitespace": (
        "warning",
        "the same text with other blanks or newlines is another prefix",
        "normalise newlines and trailing blanks once, when the text is ingested",
    ),
    "overlap": (
        "note",
        "documents of one request overlap: the same text is sent twice",
        "cut chunks without overlap, or merge neighbours at ingestion; never trim for one request",
    ),
    "R1": (
        "warning",
        "documents go into the prompt in retrieval order",
        "use an ordering that reuses: prefix_tree, or sorted by a stable key",
    ),
    "R2": (
        "error",
        "a score, rank, distance or access date is printed in a document block",
        "keep it out of the text: it changes with every question",
    ),
    "R3": (
        "warning",
        "documents are labelled by position: the same document gets another label each time",
        "label by a hash of source and text",
    ),
    "R4": (
        "error",
        "the question stands before the documents",
        "put the question last",
    ),
    "R5": (
        "warning",
        "LongContextReorder gives the documents another order for every question",
        "remove it; a rank note behind the documents tells the model the order",
    ),
    "R6": (
        "warning",
        "the text of a document varies between requests: highlighting, compression or blanks",
        "send the stored text as it is",
    ),
    "R7": (
        "error",
        "a cache breakpoint stands behind a part that varies",
        "mark before the part that varies: this entry is written and never read",
    ),
    "R8": (
        "warning",
        "the provider's implicit breakpoint is on: every request is billed as a write",
        'prompt_cache_options={"mode": "explicit"} with planned breakpoints',
    ),
    "R9": (
        "warning",
        "prompt_cache_key is missing, or carries more requests than the provider keeps together",
        "one key for each common prefix, spread above the provider's rate",
    ),
    "R10": (
        "note",
        "the common prefix is shorter than the provider caches",
        "put more that is stable in front, or do not mark it",
    ),
    "R11": (
        "warning",
        "more content blocks between two breakpoints than the provider looks back",
        "set a breakpoint between them",
    ),
    "R12": (
        "error",
        "a ranking hint stands before the documents",
        "put it behind the last document",
    ),
    "R13": (
        "error",
        "a tenant's id, salt or data stands in a prefix that others share",
        "keep it out of system text and documents; isolate by cache_salt",
    ),
    "R14": (
        "note",
        "a document is shorter than the engine's KV block: it is never reused by itself",
        "merge short chunks, or set align_blocks",
    ),
    "R15": (
        "error",
        "a document id is used again for another text",
        "give a changed text a new version, and announce the change",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault.

    Args:
        rule: Name of the rule.
        path: File.
        line: Line in it, 1 for the first.
        column: Column in it, 1 for the first; 0 where there is none.
        detail: What exactly, with measured numbers; never a whole value.
    """

    rule: str
    path: str
    line: int
    column: int = 0
    detail: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return RULES[self.rule][0]

    def __str__(self) -> str:
        """Return `path:line:column: rule: what is wrong (detail). What to do.`"""
        _, title, advice = RULES[self.rule]
        place = f"{self.path}:{self.line}" + (f":{self.column}" if self.column else "")
        detail = f" ({self.detail})" if self.detail else ""
        return f"{place}: {self.rule}: {title}{detail}. Remedy: {advice}."

    def plain(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        _, title, advice = RULES[self.rule]
        return {
            "rule": self.rule,
            "severity": self.severity,
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "message": title,
            "detail": self.detail,
            "remedy": advice,
        }


def unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings by place, each rule once at a place."""
    found = {(f.path, f.line, f.column, f.rule): f for f in reversed(list(findings))}
    return tuple(found[key] for key in sorted(found))


def as_text(findings: Sequence[Finding]) -> str:
    """Return the report for people."""
    if not findings:
        return "no findings"
    counts = {s: sum(1 for f in findings if f.severity == s) for s in ("error", "warning", "note")}
    summary = ", ".join(f"{count} {name}s" for name, count in counts.items() if count)
    return "\n".join([*(str(finding) for finding in findings), summary])


def as_json(findings: Sequence[Finding]) -> str:
    """Return the report for programs."""
    return json.dumps({"findings": [finding.plain() for finding in findings]}, indent=2)


_LONG = re.compile(r"[^\s\"'<>{}\[\](),;]{9,}")


def hidden(text: str, *, most: int = 24) -> str:
    """Return a short piece of a text with long words cut: never a whole value."""
    cut = _LONG.sub(lambda match: f"{match[0][:3]}…", text)
    cut = cut.encode("unicode_escape").decode("ascii").replace("\\u2026", "…")
    return cut if len(cut) <= most else f"{cut[: most - 1]}…"
