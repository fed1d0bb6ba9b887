"""The border: errors of the driver become errors of ragcache here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from ..errors import IsolationError, MigrationError, StoreError, StoreUnavailableError

_SCHEMA = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
    psycopg.errors.InvalidSchemaName,
)


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises inside the block into errors of ragcache.

    Raises:
        StoreUnavailableError: Not reachable, gone, too slow, or no connection was free.
        IsolationError: The role lacks a right, or touched a row of another tenant.
        MigrationError: A table, column or type is missing.
        StoreError: Anything else.
    """
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        raise IsolationError(
            f"the database refused this role ({first_line(error)}): give the store the app DSN "
            "that `ragcache init` made, and run `ragcache doctor`"
        ) from error
    except _SCHEMA as error:
        raise MigrationError(
            f"the schema is not the one this version needs ({first_line(error)}): run "
            "`ragcache migrate`"
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise StoreUnavailableError(f"Postgres: {first_line(error)}") from error
    except psycopg.Error as error:
        raise StoreError(f"Postgres refused a statement: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's text: the rest may quote rows."""
    return (str(error) or type(error).__name__).splitlines()[0]
