"""What else the ops role can tell of a database that serves: extension, indexes, clock."""

from __future__ import annotations

from datetime import UTC, datetime

from ..errors import StoreError
from .findings import Finding
from .maintenance import INDEX_AT, unindexed
from .ops import connected
from .queries import queries
from .roles import server_fault

_CHECK = queries("check")
#: Further apart, lifetimes are decided differently by each process.
_SKEW_MAX_S = 5.0


def looked_at(ops_dsn: str, *, index_at: int = INDEX_AT) -> tuple[Finding, ...]:
    """Look at extension, indexes and clock; raises nothing.

    Args:
        ops_dsn: The ops role's.
        index_at: Vectors in a partition from which it is to have an index.
    """
    found = []
    for look in (_extension, lambda dsn: _index(dsn, index_at), _clock):
        try:
            found.append(look(ops_dsn))
        except StoreError as error:
            return (*found, Finding(name="extension", ok=False, detail=str(error)))
    return tuple(found)


def _extension(ops_dsn: str) -> Finding:
    with connected(ops_dsn) as connection:
        ((number, version, pgvector, _),) = connection.execute(_CHECK["server"], {}).fetchall()
    fault = server_fault(number, version, pgvector)
    detail = fault or f"PostgreSQL {version} with pgvector {pgvector}"
    return Finding(name="extension", ok=not fault, detail=detail)


def _index(ops_dsn: str, index_at: int) -> Finding:
    lacking = unindexed(ops_dsn, index_at=index_at)
    if not lacking:
        detail = f"no partition of {index_at:,} vectors or more is without an index"
        return Finding(name="index", ok=True, detail=detail)
    most = max(crowd.vectors for crowd in lacking)
    return Finding(
        name="index",
        ok=True,
        detail=f"{len(lacking)} partitions of up to {most:,} vectors have no index: every lookup "
        "reads all of them",
        advice="`ragcache maintain` builds them",
    )


def _clock(ops_dsn: str) -> Finding:
    with connected(ops_dsn) as connection:
        before = datetime.now(UTC)
        ((theirs,),) = connection.execute("SELECT clock_timestamp()").fetchall()
        ours = before + (datetime.now(UTC) - before) / 2
    apart_s = abs((theirs - ours).total_seconds())
    if apart_s <= _SKEW_MAX_S:
        return Finding(name="clock", ok=True, detail=f"{apart_s:.1f} s from the database's")
    return Finding(
        name="clock",
        ok=False,
        detail=f"this machine's clock and the database's are {apart_s:,.0f} s apart: set both by "
        "NTP; whether an answer has expired is decided by the clock of the process that serves",
    )
