"""`ragcache demo`: the same questions with and without ragcache, on real parts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog="Example: ragcache demo --docs docs")(demo)


def demo(
    docs: Annotated[
        Path | None,
        typer.Option(help="Folder of .md, .rst and .txt files; the Python reference if not given."),
    ] = None,
) -> None:
    """Ask about 40 questions of a LangChain chain, plain and through ragcache, and compare.

    Starts a vLLM engine on CPU with a small model, or uses the server of RAGCACHE_BASE_URL and
    RAGCACHE_API_KEY. Everything that was started is stopped again.
    """
    from ..demo.run import run_demo

    raise typer.Exit(run_demo(docs))
