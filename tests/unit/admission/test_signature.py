"""Signed entries: every change of what is served is noticed."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ragcache.admission import KeyRing
from ragcache.errors import ConfigError
from ragcache.types import (
    Entry,
    EntryId,
    Fingerprint,
    Keys,
    Lineage,
    PrincipalId,
    Scope,
    TenantId,
)

RING = KeyRing({"k1": b"a" * 32}, "k1")
WHEN = datetime(2031, 1, 1, tzinfo=UTC)
ENTRY = Entry(
    id=EntryId("e"),
    scope=Scope(
        tenant=TenantId("acme"),
        principal=PrincipalId("u1"),
        group="tenant",
        namespace="default",
        partition=Fingerprint("p"),
    ),
    keys=Keys(exact=Fingerprint("x"), normal=Fingerprint("n")),
    question="What is it?",
    answer={"text": "5 days", "usage": {"input_tokens": 7}},
    lineage=(Lineage(names=("d",), content=Fingerprint("c"), raw="r", rank=0, cited=True),),
    created_at=WHEN,
    expire_at=WHEN + timedelta(days=1),
    version="v",
    model="m",
    embedder="e",
    reading={"schema": 1},
)


def test_a_signed_entry_verifies_and_an_unsigned_one_does_not() -> None:
    assert RING.verify(RING.sign(ENTRY))
    assert not RING.verify(ENTRY)


@pytest.mark.parametrize(
    "changes",
    [
        {"question": "What is that?"},
        {"answer": {"text": "6 days", "usage": {"input_tokens": 7}}},
        {"lineage": ()},
        {"expire_at": WHEN + timedelta(days=1, microseconds=1)},
        {"created_at": WHEN + timedelta(microseconds=1)},
        {"version": "w"},
        {"model": "n"},
        {"embedder": "f"},
        {"reading": {"schema": 2}},
        {"keys": Keys(exact=Fingerprint("y"), normal=Fingerprint("n"))},
        {"scope": replace(ENTRY.scope, tenant=TenantId("other"))},
        {"scope": replace(ENTRY.scope, principal=PrincipalId("u2"))},
        {"scope": replace(ENTRY.scope, group="public")},
        {"kid": "k2"},
    ],
)
def test_every_change_of_what_is_served_is_noticed(changes: dict[str, Any]) -> None:
    assert not RING.verify(replace(RING.sign(ENTRY), **changes))


def test_every_byte_of_question_and_signature_counts() -> None:
    signed = RING.sign(ENTRY)
    for at in range(len(signed.signature)):
        flipped = bytearray(signed.signature)
        flipped[at] ^= 1
        assert not RING.verify(replace(signed, signature=bytes(flipped)))
    for at in range(len(signed.question)):
        text = signed.question[:at] + chr(ord(signed.question[at]) ^ 1) + signed.question[at + 1 :]
        assert not RING.verify(replace(signed, question=text))


def test_the_fields_left_out_are_exactly_the_listed_ones() -> None:
    left_out = {"id", "state", "vector", "signature"}
    other: dict[str, Any] = {"id": EntryId("f"), "state": "quarantined"}
    signed = RING.sign(ENTRY)
    assert all(RING.verify(replace(signed, **{name: value})) for name, value in other.items())
    assert left_out < {f.name for f in fields(Entry)}


def test_keys_rotate_and_a_dropped_one_makes_misses() -> None:
    signed = RING.sign(ENTRY)
    both = KeyRing({"k1": b"a" * 32, "k2": b"b" * 32}, "k2")
    assert both.verify(signed)
    assert both.sign(ENTRY).kid == "k2"
    assert not KeyRing({"k2": b"b" * 32}, "k2").verify(signed)


def test_a_database_may_give_whole_numbers_back_as_integers() -> None:
    signed = RING.sign(replace(ENTRY, answer={"n": 1.0}))
    assert RING.verify(replace(signed, answer={"n": 1}))


@pytest.mark.parametrize(
    ("keys", "current"), [({}, "k"), ({"k": b"short"}, "k"), ({"k": b"a" * 32}, "x")]
)
def test_a_bad_ring_is_a_config_error(keys: dict[str, bytes], current: str) -> None:
    with pytest.raises(ConfigError):
        KeyRing(keys, current)


def test_a_ring_never_shows_its_keys() -> None:
    assert "aaaa" not in repr(RING)
