"""Rows that somebody altered: a miss, never an exception, and no object of any library."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragcache.admission import KeyRing
from ragcache.lookup import LookupPolicy, Reading, decide, read
from ragcache.types import (
    Candidate,
    Entry,
    EntryId,
    Fingerprint,
    Hit,
    Keys,
    PrincipalId,
    Request,
    Scope,
    TenantId,
)

NOW = datetime(2031, 1, 1, tzinfo=UTC)
RING = KeyRing({"k": b"k" * 32}, "k")
QUESTION = "What is the leave carry-over limit?"
ENTRY = RING.sign(
    Entry(
        id=EntryId("e"),
        scope=Scope(
            tenant=TenantId("acme"),
            principal=PrincipalId("acme"),
            group="principal:acme",
            namespace="default",
            partition=Fingerprint("p"),
        ),
        keys=Keys(exact=Fingerprint("x"), normal=Fingerprint("n")),
        question=QUESTION,
        answer={"text": "5 days"},
        lineage=(),
        created_at=NOW,
        expire_at=NOW + timedelta(days=1),
        reading=read(QUESTION).as_json(),
    )
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def served(entry: Entry) -> bool:
    if not RING.verify(entry):
        return False
    found = decide(
        [Candidate(entry=entry, similarity=1.0, exact=True)],
        asked=read(QUESTION),
        request=Request(tenant="acme", question=QUESTION),
        now=NOW,
        policy=LookupPolicy(),
    )
    return isinstance(found, Hit)


def test_control_the_row_as_it_was_signed_is_served() -> None:
    assert served(ENTRY)


@given(json_values)
@settings(max_examples=200, deadline=None)
def test_any_json_in_place_of_a_reading_is_read_or_refused(value: Any) -> None:
    assert isinstance(Reading.from_json(value), Reading | None)
    assert not served(replace(ENTRY, reading=value))


@given(json_values)
@settings(max_examples=100, deadline=None)
def test_any_json_in_place_of_an_answer_is_a_miss(value: Any) -> None:
    assert not served(replace(ENTRY, answer=value)) or value == ENTRY.answer


def test_bad_rows_are_misses(data_dir: Path) -> None:
    rows = json.loads((data_dir / "security/bad_rows.json").read_text())["rows"]
    assert len(rows) > 5
    before = set(sys.modules)
    for row in rows:
        assert not served(replace(ENTRY, answer=row["payload"]))
        assert not served(replace(ENTRY, reading=row["payload"]))
    assert not {"pickle", "yaml", "dill"} & (set(sys.modules) - before)


def _mutated(count: int) -> int:
    """Flip one byte of one column of the row as JSON; return how many are still served."""
    draw = random.Random(3)
    columns = {
        "question": ENTRY.question,
        "answer": json.dumps(ENTRY.answer),
        "reading": json.dumps(ENTRY.reading),
        "version": ENTRY.version or "v",
        "kid": ENTRY.kid,
    }
    kept = 0
    for _ in range(count):
        name = draw.choice(sorted(columns))
        raw = bytearray(columns[name].encode())
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(7)
        text = raw.decode("utf-8", "replace")
        try:
            value: Any = json.loads(text) if name in ("answer", "reading") else text
        except ValueError:
            value = text
        kept += served(replace(ENTRY, **{name: value}))
    return kept


def test_mutated_rows_are_misses() -> None:
    assert _mutated(500) == 0


@pytest.mark.prove
def test_10000_mutated_rows_are_misses() -> None:
    assert _mutated(10_000) == 0
