"""What the verbs print with: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType
    from rich.table import Table

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

#: Control characters of stored texts would otherwise steer the operator's terminal.
_CONTROLS = {c: f"\\x{c:02x}" for c in (*range(0x20), 0x7F, *range(0x80, 0xA0)) if c != 0x0A}


def shown(value: Any) -> str:
    """Return a value as a terminal may show it: no control character, no markup read."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    return str(value).translate(_CONTROLS)


def say(text: str, *, style: str = "") -> None:
    """Print a line of the result."""
    out.print(shown(text), style=style or None, markup=False)


def note(text: str) -> None:
    """Print a line about what is being done, beside the result."""
    err.print(shown(text), style="dim", markup=False)


def complain(error: BaseException) -> None:
    """Print an error and what caused it, the outermost first."""
    err.print(f"error: {shown(str(error))}", style="red", markup=False)
    cause = error.__cause__
    while cause is not None:
        text = shown(str(cause).strip())
        err.print(f"  because: {type(cause).__name__}: {text}", style="dim", markup=False)
        cause = cause.__cause__


def print_json(value: Any) -> None:
    """Print a value as JSON, for scripts."""
    out.print_json(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any] | Sequence[Any]]
) -> None:
    """Print rows under columns."""
    out.print(table(title, columns, rows))


def table(
    title: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any] | Sequence[Any]]
) -> Table:
    """Return a table of rows under columns; numbers stand to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [[row.get(c) for c in columns] if isinstance(row, Mapping) else row for row in rows]
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for at, column in enumerate(columns):
        numeric = bool(cells) and all(_is_number(row[at]) for row in cells)
        made.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        made.add_row(*[Text(shown(cell)) for cell in row])
    return made


def _is_number(cell: Any) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with the time left, on stderr; give what moves it: (done, total)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show(renderable: RenderableType) -> None:
    """Print something rich can render."""
    out.print(renderable)
