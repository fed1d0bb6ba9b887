"""Numbered migrations, applied once each, in order, under one lock.

They are written to be safe while an older version serves: columns and tables are added before
the code that needs them, `lock_timeout` keeps a migration from queueing in front of requests,
and a failed one leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, LiteralString

import psycopg

from ..errors import MigrationError
from .errors import translated

#: Locks out a second migration of the same database; any fixed number will do.
_LOCK = 0x72616763
_FILE = re.compile(r"^(\d{4})_(\w+)\.sql$")
#: A migration that cannot get its lock in this time gives way to the requests behind it.
LOCK_TIMEOUT_S = 2.0

#: `roles.OWNER`, which cannot be imported here: roles come before their schema.
_OWNER: Final = "ragcache_owner"

_BOOK = """
CREATE TABLE IF NOT EXISTS ragcache.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""

#: Types of pgvector are found wherever the extension was created.
_PATH = """
SELECT set_config('search_path', 'pg_catalog, ragcache, ' || quote_ident(n.nspname), true)
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'vector'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered step."""

    number: int
    name: str
    text: LiteralString

    @property
    def checksum(self) -> str:
        """Return the SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.number:04d}_{self.name}"


def migrations() -> tuple[Migration, ...]:
    """Return every migration this version knows, in order."""
    folder = files("ragcache.store") / "sql" / "migrations"
    found = [(m, file) for file in folder.iterdir() if (m := _FILE.match(file.name))]
    steps = [
        # A file of the package is as trusted as its code.
        Migration(number=int(m[1]), name=m[2], text=file.read_text("utf-8"))
        for m, file in found
    ]
    return tuple(sorted(steps, key=lambda step: step.number))


def pending(known: Sequence[Migration], applied: Mapping[int, str]) -> tuple[Migration, ...]:
    """Return the known migrations that are not applied yet.

    Numbers applied by a newer version are left alone: it adds, this one goes on working.

    Raises:
        MigrationError: An applied migration is not the one this version knows.
    """
    for step in known:
        if applied.get(step.number, step.checksum) != step.checksum:
            raise MigrationError(
                f"migration {step} was applied with another text: the schema was made by a "
                "changed copy of ragcache; restore it from the release, or set up a new database"
            )
    return tuple(step for step in known if step.number not in applied)


def check(dsn: str) -> tuple[Migration, ...]:
    """Return the migrations that the database still lacks; changes nothing.

    Raises:
        MigrationError: There is no schema at all, or it is not this project's.
        StoreUnavailableError: The database cannot be reached.
    """
    with translated(), psycopg.connect(dsn, autocommit=True) as connection:
        return pending(migrations(), applied(connection))


def sql(steps: Sequence[Migration] | None = None) -> str:
    """Return migrations as one script, all of them by default, for those who apply it themselves.

    As the administrator who ran `ragcache init`, or as the ops role: `psql -f`. Each step is a
    transaction of its own with its row in the book, so that this version knows it was applied.
    """
    chosen = migrations() if steps is None else steps
    return "\n".join(_script(step) for step in chosen)


def _script(step: Migration) -> str:
    lines = (
        f"-- migration {step}",
        "BEGIN;",
        f"SET LOCAL ROLE {_OWNER};",
        f"{_PATH.strip()};",
        f"SET LOCAL lock_timeout = '{int(LOCK_TIMEOUT_S * 1000)}ms';",
        f"{_BOOK.strip()};",
        "",
        step.text.strip(),
        "",
        "INSERT INTO ragcache.migration (number, name, checksum)",
        f"VALUES ({step.number}, '{step.name}', '{step.checksum}');",
        "COMMIT;",
    )
    return "\n".join(lines) + "\n"


def apply(
    dsn: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S, upto: int | None = None
) -> tuple[Migration, ...]:
    """Apply what is pending, as the owner of the schema; return what was applied.

    Args:
        dsn: The ops role, or the administrator who made it.
        lock_timeout_s: How long a step may wait for a table before it gives way.
        upto: The last number to apply; all where none is given.

    Raises:
        MigrationError: A step failed or had to give way; nothing of it remains.
        StoreUnavailableError: The database cannot be reached.
    """
    with translated(), psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        try:
            return _apply(connection, lock_timeout_s, upto)
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def applied(connection: psycopg.Connection[tuple[object, ...]]) -> Mapping[int, str]:
    """Return the applied numbers with their checksums."""
    exists = connection.execute("SELECT to_regclass('ragcache.migration') IS NOT NULL").fetchone()
    if exists is None or not exists[0]:
        return {}
    rows = connection.execute("SELECT number, checksum FROM ragcache.migration").fetchall()
    return {int(str(number)): str(checksum) for number, checksum in rows}


def _apply(
    connection: psycopg.Connection[tuple[object, ...]], lock_timeout_s: float, upto: int | None
) -> tuple[Migration, ...]:
    steps = [
        step
        for step in pending(migrations(), applied(connection))
        if upto is None or step.number <= upto
    ]
    for step in steps:
        _apply_one(connection, step, lock_timeout_s)
    return tuple(steps)


def _apply_one(
    connection: psycopg.Connection[tuple[object, ...]], step: Migration, lock_timeout_s: float
) -> None:
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL ROLE {_OWNER}")
            connection.execute(_PATH)
            connection.execute(
                "SELECT set_config('lock_timeout', %s, true)", (f"{int(lock_timeout_s * 1000)}ms",)
            )
            connection.execute(_BOOK)
            connection.execute(step.text)
            connection.execute(
                "INSERT INTO ragcache.migration (number, name, checksum) VALUES (%s, %s, %s)",
                (step.number, step.name, step.checksum),
            )
    except psycopg.errors.LockNotAvailable as error:
        raise MigrationError(
            f"migration {step} waited {lock_timeout_s} s for a table that is in use and gave way: "
            "run `ragcache migrate` again when there is less traffic"
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise MigrationError(
            f"migration {step} was refused ({error.diag.message_primary}): run it with the ops "
            "DSN that `ragcache init` made, or with an administrator's"
        ) from error
