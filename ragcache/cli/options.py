"""Options that several verbs share, and how their values are read."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="RAGCACHE_CONFIG",
        help="Settings file; ragcache.toml in this folder where none is given.",
    ),
]
OpsDsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        help="Postgres as the ops role; store.ops_dsn of the settings where none is given, "
        "and without any the embedded Postgres.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose entries.")]
AnyTenant = Annotated[
    str | None,
    typer.Option("--tenant", help="Only this tenant's; everybody's where none is given."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the audit.")]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def span(text: str) -> timedelta:
    """Read a span of time: `90s`, `15m`, `12h`, `30d`, `2w`."""
    if found := _SPAN.fullmatch(text.strip().lower()):
        return timedelta(seconds=float(found[1]) * _UNITS[found[2]])
    raise typer.BadParameter(f"{text!r} is no span of time: write 90s, 15m, 12h, 30d or 2w")


def moment(text: str, *, now: datetime) -> datetime:
    """Read a moment: how long ago (`30d`), or a date and time (`2026-01-31T12:00`)."""
    if _SPAN.fullmatch(text.strip().lower()):
        return now - span(text)
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is neither a span (30d, 12h) nor a date (2026-01-31)"
        ) from error
    return read if read.tzinfo else read.replace(tzinfo=now.tzinfo)
