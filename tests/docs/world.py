"""What a reader of the documentation has around them: files, a database, a model, a shell."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ragcache import RagCache, Settings
from ragcache.cli.app import app
from ragcache.portal import Portal
from ragcache.store.binaries import find_install
from ragcache.store.roles import Dsns
from ragcache.store.traffic import TrafficWriter, Verdict
from ragcache.telemetry import savings
from ragcache.telemetry.record import assemble
from ragcache.telemetry.recorder import row_of
from ragcache.telemetry.request_log import line_of
from ragcache.types import TenantId
from tests.unit.telemetry.samples import of_hit, of_miss

from .blocks import Block

DOCUMENTS = [{"id": n, "text": f"Rule {n}. The fee is {80 + n} per day."} for n in range(6)]
TRACE = [
    {
        "query": f"What is rule {n}?",
        "ids": [n % 6, (n + 1) % 6],
        "answers": [f"{80 + n % 6} per day"],
    }
    for n in range(8)
]
PAIRS = [
    {"a": "What is the fee?", "b": "How much is the fee?", "same": True},
    {"a": "What is the fee per day?", "b": "What is the fee per year?", "same": False},
] * 4
QUESTIONS = [
    {"text": f"What is the {word} fee?", "label": word} for word in ("port", "day", "port", "night")
]


class World:
    """A folder with everything that the pages speak of, and a database of its own."""

    def __init__(self, folder: Path, dsns: Dsns, base_url: str) -> None:
        self.folder = folder
        self.dsns = dsns
        self.names: dict[str, Any] = {"__name__": "documentation"}
        self.env = {
            "RAGCACHE_ADMIN_DSN": dsns.admin,
            "REQUEST_ID": "served-1",
            "COLUMNS": "200",
            "NO_COLOR": "1",
            # The server's own tools: pg_dump refuses a server that is newer than itself.
            "PATH": f"{find_install() / 'bin'}:{os.environ['PATH']}",
        }
        settings = (
            f'[api]\nbase_url = "{base_url}"\n\n[model]\nname = "fake"\n\n[embedding]\nmodel = ""\n'
            f'\n[store]\ndsn = "{dsns.app}"\nops_dsn = "{dsns.ops}"\nmaintain_every_s = 0\n'
            "\n[budgets]\nstore_ms = 10000\nput_ms = 10000\n"
        )
        (folder / "ragcache.toml").write_text(settings)
        self._write("documents.jsonl", DOCUMENTS)
        self._write("trace.jsonl", TRACE)
        self._write("pairs.jsonl", PAIRS)
        self._write("questions.jsonl", QUESTIONS)
        self._logs()
        (folder / "src").mkdir()
        (folder / "src" / "chain.py").write_text('SYSTEM = "Answer from the documents only."\n')
        self._traffic()

    def _write(self, name: str, rows: list[dict[str, Any]]) -> None:
        (self.folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def _logs(self) -> None:
        _, laid, called, *_ = of_miss()
        line = line_of(called, laid.layout, at_s=1.0)
        (self.folder / "requests.jsonl").write_text(line)
        (self.folder / "monday.json").write_text(line)
        (self.folder / "tuesday.json").write_text(line.replace("The fee is 80.", "The fee is 90."))

    def _traffic(self) -> None:
        """A call, a hit that was verified, and the hit that the pages ask about."""
        writer, now = TrafficWriter(self.dsns.app), datetime.now(UTC)
        made = [of_miss("acme", "asked-1"), of_hit("acme", "served-0"), of_hit("acme", "served-1")]
        rows = [row_of(assemble(e, at=now, prices=savings.prices_of())) for e in made]
        verdict = Verdict(
            id="served-0",
            entry="",
            agreed=True,
            by="verification",
            at=now,
            namespace="default",
            model="m",
            version="v1",
        )
        writer.write(TenantId("acme"), rows)
        writer.write(TenantId("acme"), (), [verdict])
        writer.close()

    # --- commands ------------------------------------------------------------------------------

    def run(self, command: str, *, code: int | None = 0) -> str:
        """Run a command as the reader would type it; return what it printed.

        `code` is how it has to end; None where that is not what is asked.
        """
        if command.startswith("ragcache "):
            return self._verb(command, code)
        ran = subprocess.run(
            ["bash", "-euc", command],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, **self.env},
            timeout=120,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    def _verb(self, command: str, code: int | None) -> str:
        """In this process: loading the libraries once is enough."""
        words = [self._expanded(word) for word in shlex.split(command)[1:]]
        runner = CliRunner(env={**self.env, "RAGCACHE_CONFIG": ""})
        with ThreadPoolExecutor(1) as threads:  # a verb runs its own loop, the test's runs here
            result = threads.submit(runner.invoke, app, words).result()
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, f"{command}\n{result.output}"
        return result.stdout

    def _expanded(self, word: str) -> str:
        return re.sub(r"\$(\w+)|\bREQUEST_ID\b", lambda m: self.env[m[1] or "REQUEST_ID"], word)

    # --- Python --------------------------------------------------------------------------------

    async def execute(self, block: Block, stack: AsyncExitStack) -> None:
        """Run a Python block, with what earlier blocks of the page have made."""
        if "cache" not in self.names and re.search(r"\bawait cache\b", block.text):
            opened = RagCache.open(Settings.load(self.folder / "ragcache.toml"))
            self.names["cache"] = await stack.enter_async_context(opened)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(block.text, block.name, "exec", flags=flags, dont_inherit=True)
        result = eval(code, self.names)
        if inspect.isawaitable(result):
            await result
        for value in self.names.values():
            if isinstance(value, Portal):
                stack.callback(value.close)
