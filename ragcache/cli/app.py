"""The app: its verbs, what they share, and how an error becomes an exit code.

Exit codes: 0 ok, 1 failed, 2 usage, 3 unhealthy.
"""

from __future__ import annotations

import importlib
import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import RagCacheError
from .console import complain

#: Modules that add verbs, in the order of `--help`.
_VERBS: tuple[str, ...] = ()

app = typer.Typer(
    name="ragcache",
    help="Prefix reuse and a safe answer cache for RAG chains.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Take the options that stand before a verb."""


for _name in _VERBS:
    importlib.import_module(f".{_name}", __package__).add_to(app)


def main() -> None:
    """Run the command line; print an error as one sentence and its causes."""
    try:
        app()
    except RagCacheError as error:
        complain(error)
        sys.exit(1)
