"""Entries as rows and back. Plain functions; no SQL and no connection here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..keys import raw_hash
from ..protocols import Snapshot
from ..types import (
    Candidate,
    Document,
    Entry,
    EntryId,
    Fingerprint,
    Keys,
    Lineage,
    PrincipalId,
    Scope,
)

#: What a B-tree key can hold is limited (2,704 bytes); several texts share one.
_TEXT_MAX_BYTES = 1000
Row = Sequence[Any]


def storable(text: str) -> str:
    """Return the text, or its hash where a Postgres key could not hold it.

    NUL, lone surrogates and very long texts are replaced; equal stays equal, different stays
    different.
    """
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError:
        return raw_name(raw_hash(text))
    if len(encoded) > _TEXT_MAX_BYTES or b"\0" in encoded:
        return raw_name(raw_hash(text))
    return text


def raw_name(raw: str) -> str:
    """Return the name under which a document is known by its raw text alone."""
    return f"sha256:{raw}"


def document_names(documents: Iterable[Document]) -> tuple[str, ...]:
    """Return every name that can kill an answer built from these documents, sorted."""
    names = {storable(name) for document in documents for name in document.names}
    names |= {raw_name(raw_hash(document.text)) for document in documents}
    return tuple(sorted(names))


def lineage_names(lineage: Iterable[Lineage]) -> tuple[str, ...]:
    """Return the same names from a lineage."""
    names = {storable(name) for line in lineage for name in line.names}
    names |= {raw_name(line.raw) for line in lineage}
    return tuple(sorted(names))


def scope_values(scope: Scope) -> dict[str, Any]:
    """Return the parameters that keep a statement inside a scope."""
    return {
        "tenant": storable(scope.tenant),
        "principal": storable(scope.principal),
        "sharing": storable(scope.group),
        "namespace": storable(scope.namespace),
        "partition": scope.partition,
        "access": sorted(storable(tag) for tag in scope.access),
    }


def key_values(scope: Scope, keys: Keys) -> dict[str, str]:
    """Return the parameters of `find_exact`: few, because it is asked before every request."""
    return {
        "tenant": storable(scope.tenant),
        "principal": storable(scope.principal),
        "partition": scope.partition,
        "exact": keys.exact,
        "normal": keys.normal,
    }


def entry_values(entry: Entry, epoch: int) -> dict[str, Any]:
    """Return the parameters of an entry's row, its vector aside."""
    needs = {storable(tag) for line in entry.lineage for tag in line.access}
    return {
        **scope_values(entry.scope),
        "id": storable(entry.id),
        "needs": sorted(needs),
        "exact": entry.keys.exact,
        "normal": entry.keys.normal,
        "question": entry.question,
        "answer": json.dumps(entry.answer),
        "reading": reading_json(entry),
        "state": entry.state,
        "created_at": entry.created_at,
        "expire_at": entry.expire_at,
        "epoch": epoch,
        "version": entry.version,
        "model": entry.model,
        "embedder": storable(entry.embedder),
        "kid": entry.kid,
        "signature": entry.signature,
        "lineage": json.dumps([_line(at, line) for at, line in enumerate(entry.lineage)]),
    }


def reading_json(entry: Entry) -> str | None:
    """Return what was understood of the question, as its column holds it."""
    return None if entry.reading is None else json.dumps(entry.reading)


def _line(position: int, line: Lineage) -> dict[str, Any]:
    return {
        "position": position,
        "names": [storable(name) for name in line.names],
        "content": line.content,
        "raw": line.raw,
        "rank": line.rank,
        "cited": line.cited,
        "access": sorted(storable(tag) for tag in line.access),
    }


def unstorable(entry: Entry) -> str:
    """Return which text of the entry Postgres cannot hold; empty where it can hold all."""
    texts = {"question": entry.question, "version": entry.version, "model": entry.model}
    for name, text in texts.items():
        if "\0" in text or not _encodes(text):
            return name
    return ""


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def refusal(snapshot: Snapshot, epoch: int, numbers: Mapping[str, int]) -> str:
    """Return why an answer begun at `snapshot` must not be stored now; empty where it may."""
    if epoch != snapshot.epoch:
        return "epoch"
    taken = dict(snapshot.changes)
    if any(taken.get(name, number) != number for name, number in numbers.items()):
        return "document_changed"
    return ""


def entry_of(row: Row, scope: Scope) -> Entry:
    """Return the entry of a row that begins with what is read of each.

    What the statement asked for by equality (tenant, namespace, partition, who shares it) is the
    scope's own; a partition holds one set of the asker's tags.
    """
    id_, principal, exact, normal, question, answer, reading, state, *rest = row
    created_at, expire_at, version, model, embedder, kid, signature, lineage, *_ = rest
    own = principal == scope.principal
    return Entry(
        id=EntryId(id_),
        scope=scope if own else replace(scope, principal=PrincipalId(principal)),
        keys=Keys(exact=Fingerprint(exact), normal=Fingerprint(normal)),
        question=question,
        answer=answer,
        lineage=tuple(_lineage(line) for line in lineage or ()),
        created_at=_utc(created_at),
        expire_at=_utc(expire_at),
        state=state,
        version=version,
        model=model,
        embedder=embedder,
        reading=reading,
        kid=kid,
        signature=bytes(signature),
    )


def exact_candidates(
    rows: Iterable[Row], scope: Scope, keys: Keys, now: datetime
) -> tuple[Candidate, ...]:
    """Return the candidates of rows of `find_exact`, those that may still be served first.

    Only those whose documents ask for no right that the asker lacks.
    """
    found = [
        Candidate(
            entry=(entry := entry_of(row, scope)),
            similarity=1.0,
            current=row[-1],
            exact=entry.keys.exact == keys.exact,
        )
        for row in rows
    ]
    allowed = [c for c in found if all(line.access <= scope.access for line in c.entry.lineage)]
    return tuple(sorted(allowed, key=lambda c: (c.entry.expire_at <= now, not c.current)))


def near_candidates(rows: Iterable[Row], scope: Scope) -> tuple[Candidate, ...]:
    """Return the candidates of rows of `find_near` whose documents are what they were.

    The distance to a zero vector is NaN; none is written, but none is trusted either.
    """
    return tuple(
        Candidate(entry=entry_of(row, scope), similarity=1.0 - distance, current=True)
        for *row, current, distance in rows
        if current and not math.isnan(distance)
    )


def _lineage(line: Sequence[Any]) -> Lineage:
    names, content, raw, rank, cited, access = line
    return Lineage(
        names=tuple(names),
        content=Fingerprint(content),
        raw=raw,
        rank=rank,
        cited=cited,
        access=frozenset(access),
    )


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)
