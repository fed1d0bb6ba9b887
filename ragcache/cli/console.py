"""What the verbs print with: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


def complain(error: BaseException) -> None:
    """Print an error and what caused it, the outermost first."""
    err.print(f"error: {error}", style="red", markup=False)
    cause = error.__cause__
    while cause is not None:
        err.print(f"  because: {type(cause).__name__}: {cause}", style="dim", markup=False)
        cause = cause.__cause__


def print_json(value: Any) -> None:
    """Print a value as JSON, for scripts."""
    out.print_json(json.dumps(value, default=str))


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any] | Sequence[Any]]
) -> None:
    """Print rows under columns."""
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        cells = [row.get(c, "") for c in columns] if isinstance(row, Mapping) else row
        table.add_row(*[str(cell) for cell in cells])
    out.print(table)
