"""Every reason that a status can carry is explained, in code and in the docs.

After a change on purpose: RAGCACHE_SNAPSHOTS=write python -m pytest tests/unit/telemetry
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import ragcache
from ragcache.admission import decision as admission
from ragcache.lookup import gates
from ragcache.telemetry.reasons import FORWARD, LOST_PREFIX, NOT_STORED

PACKAGE = Path(ragcache.__file__).parent
PAGE = PACKAGE.parent / "docs" / "reasons.md"
#: Functions that return a reason, "" for none.
TELLING = re.compile(r"(_reason|reason|_unfit|unexplained|_similar|_same_meaning|_evidence)$")


def constants_of(folder: str, *, called: str, keyword: str) -> set[str]:
    """Return the texts given for a keyword of a constructor anywhere in a package."""
    found = set()
    for path in (PACKAGE / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == called:
                for part in node.keywords:
                    if part.arg == keyword and isinstance(part.value, ast.Constant):
                        found.add(part.value.value)
    return found


def texts(value: ast.expr) -> list[str]:
    """Return the texts that an expression may give."""
    if isinstance(value, ast.IfExp):
        return [*texts(value.body), *texts(value.orelse)]
    if isinstance(value, ast.BoolOp):
        return [text for part in value.values for text in texts(part)]
    return [value.value] if isinstance(value, ast.Constant) and isinstance(value.value, str) else []


def returned_by(folder: str) -> set[str]:
    """Return the words that functions which tell a reason return."""
    found = set()
    for path in (PACKAGE / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and TELLING.search(node.name):
                for part in ast.walk(node):
                    if isinstance(part, ast.Return) and part.value is not None:
                        found |= set(texts(part.value))
    return found - {""}


def test_every_reason_of_a_miss_is_explained():
    said = constants_of("pipeline", called="Miss", keyword="reason")
    said |= constants_of("lookup", called="Miss", keyword="reason")
    said |= returned_by("lookup") | {name for name, _ in gates.GATES}
    said |= {f"{part}_{how}" for part in ("store", "embed") for how in ("timeout", "error")}
    assert len(said) > 25
    assert sorted(said - set(FORWARD)) == []


def test_every_check_of_admission_is_explained():
    checks = {name for name, _ in admission._CHECKS} | {"ttl"}
    assert sorted(checks - set(NOT_STORED)) == []


def test_no_reason_is_explained_that_nobody_gives():
    source = "\n".join(
        p.read_text(encoding="utf-8")
        for p in PACKAGE.rglob("*.py")
        if "telemetry" not in p.parts and "cli" not in p.parts
    )
    made = {"unknown", "store_timeout", "store_error", "store_breaker_open"}
    made |= {"embed_timeout", "embed_error", "embed_breaker_open"}
    words = (set(FORWARD) | set(NOT_STORED)) - made
    assert sorted(w for w in words if f'"{w}"' not in source) == []


def rendered() -> str:
    parts = [
        "# Reasons",
        (
            "One word on `answer.status` says why a request went forward (`reason`) and why its "
            "answer was not stored (`store_reason`); `answer.reuse.cause` says why fewer tokens "
            "were reused than predicted. `ragcache why REQUEST_ID` tells all three for one request."
        ),
    ]
    titles = {
        "Why a request went forward": FORWARD,
        "Why an answer was not stored": NOT_STORED,
        "Why a prefix was not reused": LOST_PREFIX,
    }
    for title, catalogue in titles.items():
        rows = [f"| `{word}` | {r.means} | {r.remedy} |" for word, r in catalogue.items()]
        parts.append(f"## {title}")
        parts.append("\n".join(["| word | means | what to do |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def test_the_page_of_reasons_shows_the_catalogue():
    if os.environ.get("RAGCACHE_SNAPSHOTS") == "write":
        PAGE.write_text(rendered(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == rendered()
