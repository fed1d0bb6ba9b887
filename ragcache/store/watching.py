"""Watch the team's own document table: an update or delete there invalidates here.

Triggers on the table run in the team's transaction, so that an answer from a changed document
is unservable from the moment the change is. Nothing in the team's code changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from ..errors import StoreError
from .errors import translated
from .queries import queries
from .roles import OWNER

_SQL = queries("watching")
_Admin = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which columns of a document table hold a chunk's id and its text."""

    id: str
    text: str


#: Tables as the libraries make them: langchain-postgres (both generations), llama-index.
SHAPES = (
    Shape(id="id", text="document"),
    Shape(id="langchain_id", text="content"),
    Shape(id="node_id", text="text"),
)


def shape_of(columns: Sequence[str]) -> Shape | None:
    """Return the known shape that a table has."""
    return next((s for s in SHAPES if {s.id, s.text} <= set(columns)), None)


def watch(dsn: str, table: str, *, tenant: LiteralString, shape: Shape | None = None) -> str:
    """Install the triggers; return the table's full name. Safe to repeat.

    Args:
        dsn: A role that owns the table and may act as `ragcache_owner`: the administrator who
            ran `ragcache init`.
        table: The document table, with its schema where that is not on the search path.
        tenant: A column of the table, or an SQL expression over its columns, that gives the
            tenant of a row: never guessed. Trusted like the rest of the operator's SQL.
        shape: Which columns hold id and text; known for langchain-postgres and llama-index.

    Raises:
        StoreError: No such table, unknown columns, or a role that may not do this.
    """
    with translated(), psycopg.connect(dsn, autocommit=True) as connection:
        oid, name = _table(connection, table)
        columns = [c for (c,) in connection.execute(_SQL["columns"], {"table": table}).fetchall()]
        shape = shape or shape_of(columns)
        if shape is None or not {shape.id, shape.text} <= set(columns):
            raise StoreError(
                f"cannot tell which columns of {table} hold a chunk's id and text (it has "
                f"{', '.join(columns)}): name them"
            )
        parts = {
            "table": name,
            "tenant": _expression(tenant, columns),
            "id": sql.Identifier(shape.id),
            "text": sql.Identifier(shape.text),
        }
        with connection.transaction():
            _install(connection, oid, parts)
    return name.as_string(None)


def unwatch(dsn: str, table: str) -> None:
    """Remove the triggers and their functions.

    Raises:
        StoreError: No such table, or a role that may not do this.
    """
    with translated(), psycopg.connect(dsn, autocommit=True) as connection:
        oid, name = _table(connection, table)
        with connection.transaction():
            connection.execute(sql.SQL(_SQL["drop_triggers"]).format(table=name))
            names = {event: _function(event, oid) for event in ("deleted", "updated", "truncated")}
            connection.execute(sql.SQL(_SQL["drop_functions"]).format(**names))


def _table(connection: _Admin, table: str) -> tuple[int, sql.Identifier]:
    row = connection.execute(_SQL["table"], {"table": table}).fetchone()
    if row is None:
        raise StoreError(f"there is no table {table}: give its name with the schema")
    oid, schema, name, owned = row
    if not owned:
        raise StoreError(
            f"this role does not own {table}: watch it with the DSN of a role that does and that "
            f"may act as {OWNER}, such as the administrator who ran `ragcache init`"
        )
    return oid, sql.Identifier(schema, name)


def _expression(tenant: LiteralString, columns: Sequence[str]) -> sql.Composable:
    if not tenant.strip():
        raise StoreError("name the column or expression that gives a row's tenant: tenant=")
    if tenant in columns:
        return sql.Identifier(tenant)
    # An operator's own SQL, as trusted as the DSN they give with it.
    return sql.SQL(tenant)


def _function(event: str, oid: int) -> sql.Identifier:
    return sql.Identifier(f"watch_{oid}_{event}")


def _install(connection: _Admin, oid: int, parts: dict[str, sql.Composable]) -> None:
    """Create the functions as the owner of the schema, the triggers as the table's owner."""
    unchanged = sql.SQL(_SQL["except_unchanged"]).format(
        tenant=parts["tenant"], id=parts["id"], text=parts["text"]
    )
    functions = (
        ("deleted", "rows_function", "delete_trigger", sql.SQL("")),
        ("updated", "rows_function", "update_trigger", unchanged),
        ("truncated", "truncate_function", "truncate_trigger", sql.SQL("")),
    )
    # A truncate is told of by reading the table while it is still full.
    connection.execute(
        sql.SQL("GRANT SELECT ON {table} TO {owner}").format(
            table=parts["table"], owner=sql.Identifier(OWNER)
        )
    )
    for event, function, _, except_unchanged in functions:
        names = {**parts, "function": _function(event, oid), "except_unchanged": except_unchanged}
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(OWNER)))
        connection.execute(sql.SQL(_SQL[function]).format(**names))
        connection.execute("RESET ROLE")
    for event, _, trigger, _ in functions:
        names = {"table": parts["table"], "function": _function(event, oid)}
        connection.execute(sql.SQL(_SQL[trigger]).format(**names))
