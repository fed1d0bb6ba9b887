"""The command line over a real Postgres."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from ragcache.cli.app import app


@dataclass(frozen=True)
class Ran:
    """What a verb printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs verbs in this process, with the DSNs of a database in the environment."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env

    def __call__(
        self, *arguments: object, stdin: str = "", code: int | None = 0, **env: str
    ) -> Ran:
        runner = CliRunner(env={**self.env, **env, "COLUMNS": "200", "NO_COLOR": "1"})
        words = [str(a) for a in arguments]
        # In a thread of its own: a verb runs its own loop, the test's is running here.
        with ThreadPoolExecutor(1) as threads:
            result = threads.submit(runner.invoke, app, words, input=stdin).result()
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, result.output
        return Ran(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def bare_cli(tmp_path, monkeypatch):
    """The command line in an empty folder, without any setting."""
    monkeypatch.chdir(tmp_path)
    for name in ("RAGCACHE_STORE__DSN", "RAGCACHE_STORE__OPS_DSN", "RAGCACHE_ADMIN_DSN"):
        monkeypatch.delenv(name, raising=False)
    return Cli({})


@pytest.fixture
def cli(bare_cli, postgres):
    """The command line on the shared database."""
    bare_cli.env = {
        "RAGCACHE_STORE__DSN": postgres.app,
        "RAGCACHE_STORE__OPS_DSN": postgres.ops,
    }
    return bare_cli


_MOMENT = re.compile(r"(\d\d)?\d\d-\d\d-\d\d[T ].*")


def shape(value: Any) -> Any:
    """Return the names and types of a JSON value. A moment as a name stands for any."""
    if isinstance(value, dict):
        return {"<moment>" if _MOMENT.fullmatch(k) else k: shape(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__
