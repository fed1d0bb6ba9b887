"""`examples/observability` starts with the plain commands of its page, all at once.

Ports and the folder of the data are the test's own; the words of the commands are the page's.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from .blocks import ROOT, blocks

COMMANDS = [c for b in blocks("examples/observability/README.md") for c in b.commands()]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(words: list[str], *, cwd=ROOT, **env: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        words,
        cwd=cwd,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def eventually(found, *, seconds: float = 120):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if value := found():
                return value
        except (httpx.HTTPError, ValueError):  # not up, or up and not ready
            pass
        time.sleep(0.3)
    raise AssertionError("it did not come up")


def test_the_page_has_three_commands():
    assert [shlex.split(c)[0] for c in COMMANDS] == ["python", "cd", "ragcache"]


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_all_of_it_starts_and_sees_the_traffic(tmp_path):
    application, prometheus, stats = COMMANDS
    scraped, served = free_port(), free_port()
    home = {"RAGCACHE_STORE__HOME": str(tmp_path / "store"), "HF_HUB_OFFLINE": "1"}
    patient = {"RAGCACHE_BUDGETS__STORE_MS": "5000", "RAGCACHE_BUDGETS__EMBED_MS": "10000"}
    text = (ROOT / "examples/observability/prometheus.yml").read_text(encoding="utf-8")
    for name in ("alerts.yml", "grafana-dashboard.json"):
        original = ROOT / "examples/observability" / name
        (tmp_path / name).write_text(original.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "prometheus.yml").write_text(
        text.replace("9464", str(scraped)).replace(": 5s", ": 1s").replace(": 15s", ": 2s")
    )
    words = [sys.executable, *shlex.split(application)[1:], "--port", str(scraped)]
    watched = shlex.split(prometheus.partition("&& ")[2])
    watched = [re.sub(r"(tsdb\.path=).*", rf"\1{tmp_path / 'data'}", word) for word in watched]
    watched.append(f"--web.listen-address=127.0.0.1:{served}")
    with running(words, **home, **patient):
        eventually(
            lambda: "ragcache_requests_total{" in httpx.get(f"http://127.0.0.1:{scraped}").text
        )
        with running(watched, cwd=tmp_path):
            query = {"query": "sum(ragcache_requests_total)"}
            url = f"http://127.0.0.1:{served}/api/v1/query"
            rows = eventually(lambda: httpx.get(url, params=query).json()["data"]["result"])
            assert float(rows[0]["value"][1]) > 0
        looked = [sys.executable, "-m", *shlex.split(stats), "--every", "0.5"]
        with running(looked, COLUMNS="200", NO_COLOR="1", **home) as process:
            time.sleep(15)  # it goes on until it is stopped, and prints its last look then
            process.send_signal(signal.SIGINT)
            shown, _ = process.communicate(timeout=60)
    assert "traffic" in shown
    assert "acme" in shown
