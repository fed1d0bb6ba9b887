"""Entries as bytes and back. Plain functions on frozen values; no connection here.

Whoever can write to Redis can write anything: what cannot be read, or names another tenant or
partition than the asker's, is no entry. Only JSON is read, and nothing in it names a type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from ...types import (
    Candidate,
    Entry,
    EntryId,
    EntryState,
    Fingerprint,
    JsonObject,
    Keys,
    Lineage,
    PrincipalId,
    Scope,
)
from ..rows import storable

SCHEMA = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What reading a value that is none of ours may raise.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
_STATES: Mapping[bytes, EntryState] = {b"live": "live", b"quarantined": "quarantined"}


def micros(moment: datetime) -> int:
    """Return a moment in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def packed(entry: Entry) -> str:
    """Return the entry as JSON, its vector and its state aside."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "tenant": entry.scope.tenant,
            "principal": entry.scope.principal,
            "group": entry.scope.group,
            "namespace": entry.scope.namespace,
            "partition": entry.scope.partition,
            "access": sorted(entry.scope.access),
            "id": entry.id,
            "exact": entry.keys.exact,
            "normal": entry.keys.normal,
            "question": entry.question,
            "answer": entry.answer,
            "lineage": [_packed_line(line) for line in entry.lineage],
            "created_us": micros(entry.created_at),
            "expire_us": micros(entry.expire_at),
            "version": entry.version,
            "model": entry.model,
            "embedder": entry.embedder,
            "reading": entry.reading,
            "kid": entry.kid,
            "signature": entry.signature.hex(),
        },
        separators=(",", ":"),
    )


def _packed_line(line: Lineage) -> list[Any]:
    return [list(line.names), line.content, line.raw, line.rank, line.cited, sorted(line.access)]


def unpacked(body: bytes, state: bytes, scope: Scope | None = None) -> Entry | None:
    """Return the entry of a body that was found in this scope; None where it is none."""
    try:
        fields = json.loads(body)
        if fields["schema"] != SCHEMA or not (scope is None or _belongs(fields, scope)):
            return None
        return _entry(fields, _STATES[state])
    except _UNREADABLE:
        return None


def _belongs(fields: Mapping[str, Any], scope: Scope) -> bool:
    """The key says so already; a body that was copied to another key says otherwise."""
    told = (fields["tenant"], fields["group"], fields["namespace"], fields["partition"])
    return told == (scope.tenant, scope.group, scope.namespace, scope.partition)


def _entry(fields: Mapping[str, Any], state: EntryState) -> Entry:
    reading = fields["reading"]
    return Entry(
        id=EntryId(_text(fields["id"])),
        scope=Scope(
            tenant=fields["tenant"],
            principal=PrincipalId(_text(fields["principal"])),
            group=fields["group"],
            namespace=fields["namespace"],
            partition=fields["partition"],
            access=_texts(fields["access"]),
        ),
        keys=Keys(
            exact=Fingerprint(_text(fields["exact"])), normal=Fingerprint(_text(fields["normal"]))
        ),
        question=_text(fields["question"]),
        answer=_object(fields["answer"]),
        lineage=tuple(_line(line) for line in fields["lineage"]),
        created_at=_moment(fields["created_us"]),
        expire_at=_moment(fields["expire_us"]),
        state=state,
        version=_text(fields["version"]),
        model=_text(fields["model"]),
        embedder=_text(fields["embedder"]),
        reading=None if reading is None else _object(reading),
        kid=_text(fields["kid"]),
        signature=bytes.fromhex(fields["signature"]),
    )


def _line(line: Sequence[Any]) -> Lineage:
    names, content, raw, rank, cited, access = line
    if not isinstance(rank, int) or not isinstance(cited, bool):
        raise TypeError("rank and cited")
    return Lineage(
        names=tuple(_text(name) for name in names),
        content=Fingerprint(_text(content)),
        raw=_text(raw),
        rank=rank,
        cited=cited,
        access=_texts(access),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text, not {type(value).__name__}")
    return value


def _texts(values: Any) -> frozenset[str]:
    return frozenset(_text(value) for value in values)


def _object(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError(f"an object, not {type(value).__name__}")
    return cast(JsonObject, value)


def _moment(micros_since: Any) -> datetime:
    if not isinstance(micros_since, int):
        raise TypeError(f"microseconds, not {type(micros_since).__name__}")
    return _EPOCH + timedelta(microseconds=micros_since)


def exact_candidates(
    rows: Iterable[Sequence[Any]], scope: Scope, keys: Keys, now: datetime
) -> tuple[list[Candidate], list[str]]:
    """Return the candidates of the rows of `find`, and the ids of what could not be read.

    Those that may still be served come first, so that a miss can tell why. Only those whose
    documents ask for no right that the asker lacks.
    """
    read, broken = _read(rows, scope)
    found = [
        Candidate(
            entry=entry,
            similarity=1.0,
            current=bool(current),
            exact=entry.keys.exact == keys.exact,
        )
        for entry, current in read
    ]
    found.sort(key=lambda c: (c.entry.expire_at <= now, not c.current))
    return found, broken


def near_candidates(
    rows: Iterable[Sequence[Any]], scope: Scope
) -> tuple[list[Candidate], list[str]]:
    """Return the candidates of the rows of `near`, nearest first, and what could not be read."""
    read, broken = _read(rows, scope)
    found = [Candidate(entry=e, similarity=float(near), current=True) for e, near in read]
    return found, broken


def _read(rows: Iterable[Sequence[Any]], scope: Scope) -> tuple[list[tuple[Entry, Any]], list[str]]:
    """Return the entries that the asker may read, each with the last value of its row, and the
    ids of what could not be read.
    """
    read, broken = [], []
    for id_, body, state, told in rows:
        entry = unpacked(body, state, scope)
        if entry is None or storable(entry.id) != _name(id_):
            broken.append(_name(id_))
        elif _covered(entry, scope):
            read.append((entry, told))
    return read, broken


def _name(id_: bytes) -> str:
    return id_.decode("utf-8", "surrogateescape")


def _covered(entry: Entry, scope: Scope) -> bool:
    return all(line.access <= scope.access for line in entry.lineage)
