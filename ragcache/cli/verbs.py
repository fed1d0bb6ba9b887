"""How a function becomes a verb: its docstring is the help, with one example below."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import typer


def add(app: typer.Typer, function: Callable[..., Any], example: str, *, name: str = "") -> None:
    """Add a verb named like its function, or otherwise."""
    help_text = _reflowed(inspect.getdoc(function) or "")
    app.command(
        name or function.__name__,
        help=help_text,
        short_help=help_text.partition("\n")[0],
        epilog=f"Example: {example}",
    )(function)


def _reflowed(text: str) -> str:
    """Join the lines of each paragraph: the terminal breaks them where it is wide."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
