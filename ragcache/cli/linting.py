"""The verbs that find what breaks a prefix: lint, diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from .console import print_json, say
from .options import AsJson
from .verbs import add

if TYPE_CHECKING:
    from ..layout.lint import Finding, Record
    from ..layout.rules import CacheRules


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    add(app, lint, "ragcache lint src --log requests.jsonl")
    add(app, diff, "ragcache diff monday.json tuesday.json")


# --- lint --------------------------------------------------------------------------------------


def lint(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Python files, or folders of them.")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Recorded requests, JSONL: one body, or {body} a line.")
    ] = None,
    block_size: Annotated[
        int | None, typer.Option(min=1, help="The engine's KV block size in tokens.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find what breaks a reusable prefix, in source or in recorded requests.

    Values are never printed in full. Exits with 1 where an error was found.
    """
    if not paths and log is None:
        raise typer.BadParameter("give Python files or folders, or --log with recorded requests")
    found = [*_in_source(paths or ()), *(_in_log(log, block_size) if log else ())]
    if as_json:
        print_json({"findings": [finding.plain() for finding in found]})
    else:
        from ..layout.lint import as_text

        say(as_text(found))
    if any(finding.severity == "error" for finding in found):
        raise typer.Exit(1)


def _in_source(paths: Sequence[Path]) -> Iterator[Finding]:
    from ..layout.lint import lint_source
    from ..providers.loader import all_rules

    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path} is not there: give a Python file or a folder")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            yield from lint_source(_text_of(file), path=str(file), rules=all_rules())


def _in_log(log: Path, block_size: int | None) -> Sequence[Finding]:
    from ..layout.lint import LogSettings, lint_log, read_records

    records = read_records(_text_of(log), path=str(log))
    return lint_log(records, LogSettings(rules=_rules_of, block_size=block_size))


def _rules_of(model: str) -> CacheRules | None:
    """Find rules by the model's name alone: a log does not name the provider."""
    from ..providers.loader import all_rules

    plain = model.lower().rpartition("/")[2]
    return next((rules for rules in all_rules() if rules.fits(plain)), None)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: byte {error.start}") from error


# --- diff --------------------------------------------------------------------------------------


def diff(
    before: Annotated[Path, typer.Argument(help="A recorded request: the first of the file.")],
    after: Annotated[Path, typer.Argument(help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """Show the first byte in which two recorded requests differ, and what causes it."""
    from ..layout.lint import diff_records

    found = diff_records(_first(before), _first(after))
    if as_json:
        print_json({"difference": None if found is None else found.plain()})
    else:
        say("no difference: one continues the other" if found is None else str(found))


def _first(path: Path) -> Record:
    from ..layout.lint import read_records

    records = read_records(_text_of(path), path=str(path))
    if not records:
        raise ConfigError(f"{path} holds no request")
    return records[0]
