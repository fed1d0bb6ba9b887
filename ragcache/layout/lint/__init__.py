"""What breaks a prefix, found in source and in recorded requests. Pure: texts in, findings out."""

from __future__ import annotations

from .diff import RecordDifference, diff_records
from .findings import RULES, Finding, as_json, as_text
from .log import LogSettings, lint_log
from .records import Record, read_records
from .source import lint_source

__all__ = [
    "RULES",
    "Finding",
    "LogSettings",
    "Record",
    "RecordDifference",
    "as_json",
    "as_text",
    "diff_records",
    "lint_log",
    "lint_source",
    "read_records",
]
