"""The app: its verbs, what they share, and how an error becomes an exit code.

Exit codes: 0 ok, 1 failed, 2 usage, 3 unhealthy.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..errors import ConfigError, RagCacheError
from .console import complain

#: Modules that add verbs, in the order of `--help`.
_VERBS = (
    "demo",
    "database",
    "batching",
    "health",
    "engine",
    "verify",
    "traffic",
    "report",
    "entries",
    "judging",
    "calibrating",
    "linting",
    "warming",
    "bench",
    "serving",
)
#: Packages that an extra brings, for the message where one is missing.
_EXTRAS = {
    "psycopg": "postgres",
    "psycopg_pool": "postgres",
    "pgvector": "postgres",
    "openai": "openai",
    "redis": "redis",
    "prometheus_client": "telemetry",
    "opentelemetry": "telemetry",
    "sentence_transformers": "sentence-transformers",
    "starlette": "gateway",
    "uvicorn": "gateway",
    "jwt": "gateway",
}


class _Verbs(TyperGroup):
    """Verbs whose errors are told in a sentence; a traceback would say less."""

    def invoke(self, ctx: Any) -> Any:  # Typer brings a click of its own, or not, by version
        """Run a verb."""
        try:
            return super().invoke(ctx)
        except RagCacheError as error:
            complain(error)
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            complain(_missing(str(error.name), extra))
        raise typer.Exit(1)


def _missing(package: str, extra: str) -> ConfigError:
    return ConfigError(f"this verb needs {package}: pip install 'ragcache-middleware[{extra}]'")


app = typer.Typer(
    cls=_Verbs,
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
    """Run the command line."""
    app()
