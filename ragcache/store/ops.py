"""What the ops role does with, one tenant at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from ..errors import MissingTenantError
from .errors import translated
from .queries import queries
from .rows import storable

SQL = queries("ops")
Ops = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def connected(dsn: str) -> Iterator[Ops]:
    """Connect as the ops role.

    Raises:
        StoreUnavailableError: The database cannot be reached.
        IsolationError: The role lacks a right.
        MigrationError: The schema is missing or behind.
    """
    with translated(), psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@contextmanager
def inside(connection: Ops, tenant: str) -> Iterator[Ops]:
    """Open a transaction inside one tenant.

    Raises:
        MissingTenantError: The tenant is empty.
    """
    if not tenant:
        raise MissingTenantError
    with connection.transaction():
        connection.execute(SQL["begin_tenant"], {"tenant": storable(tenant)})
        yield connection


def tenants(connection: Ops, only: str | None = None) -> Sequence[str]:
    """Return the tenants there are, or the one that is meant."""
    if only is not None:
        return (storable(only),)
    return [tenant for (tenant,) in connection.execute(SQL["tenants"]).fetchall()]
