"""`ragcache serve` as it is run: worker processes over one Postgres, and its end."""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ragcache.cli.serving import refuse_lone_secrets
from ragcache.errors import ConfigError
from ragcache.settings import Settings
from tests.doubles.upstream import Reply

from .conftest import Served, keys_file

CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
upstream_base_url = "{url}"

[model]
name = "fake"

[cache]
semantic_cache_enabled = false
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def until_up(served: Served, process: subprocess.Popen) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx.get(f"{served.url}/readyz", timeout=5)
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the gateway did not come up")


def test_workers_share_a_store_and_streams_end_before_the_server_does(
    postgres, upstream, tmp_path, monkeypatch
):
    port = free_port()
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(port=port, url=upstream.base_url))
    key = secrets.token_urlsafe(24)
    keys = keys_file(tmp_path, {"acme": key}, {"acme": f"acme-{secrets.token_hex(6)}"})
    gateway = Served(f"http://127.0.0.1:{port}", {"acme": key}, {})
    monkeypatch.setenv("RAGCACHE_STORE__DSN", postgres.app)
    monkeypatch.setenv("RAGCACHE_STORE__HOME", str(tmp_path))
    for budget in ("STORE_MS", "PUT_MS"):
        monkeypatch.setenv(f"RAGCACHE_BUDGETS__{budget}", "10000")
    command = [sys.executable, "-m", "ragcache", "serve", "--config", str(config)]
    command += ["--keys", str(keys), "--workers", "2"]
    with subprocess.Popen(command) as process, ThreadPoolExecutor() as threads:
        try:
            until_up(gateway, process)
            told = [gateway.ask("Fee?").headers["cache-status"] for _ in range(8)]
            assert ["hit" in status for status in told] == [False] + [True] * 7
            pieces = ["The fee", " is 80."]
            upstream.answer(Reply(text="The fee is 80.", pieces=pieces, piece_delay_s=1.0))
            streaming = threads.submit(gateway.ask, "And tomorrow?", stream=True)
            until = time.monotonic() + 30
            while not upstream.opened and time.monotonic() < until:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            assert streaming.result().text.endswith("data: [DONE]\n\n")
        finally:
            process.terminate()
        process.wait(40)
    assert len(upstream.bodies) == 2
    with pytest.raises(httpx.TransportError):
        gateway.ask("Fee?")


def test_workers_that_would_each_sign_with_a_secret_of_their_own_are_refused():
    def settings(workers: int, **sections) -> Settings:
        store = {"dsn": "postgresql://app@db/x"}
        return Settings(**{"gateway": {"workers": workers}, "store": store, **sections})

    with pytest.raises(ConfigError, match="sign with the same keys"):
        refuse_lone_secrets(settings(2))
    refuse_lone_secrets(settings(1))
    secrets_given = {"signing_keys": {"k1": "s"}, "salt_secret": "s"}
    refuse_lone_secrets(settings(2, security=secrets_given))
