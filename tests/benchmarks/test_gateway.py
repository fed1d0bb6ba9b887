"""The gateway under load: many streams at the pace of a model, and stored answers a second.

Everything runs on this machine: the client, the gateway, the fake upstream and Postgres. The ways
that are compared are measured in turn, in one run. `RAGCACHE_BENCH_S` is how long each stream
measurement takes (15 by default). `RAGCACHE_LITELLM` names the `litellm` command of an environment
of its own, for the comparison with that proxy.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

UPSTREAM = Path(__file__).parents[1] / "doubles" / "paced_upstream.py"
PIECES, PAUSE_S, STREAMS = 48, 0.05, 200
SECONDS = float(os.environ.get("RAGCACHE_BENCH_S", "15"))
KEY = "a-key-of-the-benchmark"
LITELLM = os.environ.get("RAGCACHE_LITELLM", "")


@contextmanager
def running(command: list[str], **options: object) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(40)
        for pipe in (process.stdin, process.stdout):
            if pipe:
                pipe.close()


@pytest.fixture
def upstream() -> Iterator[int]:
    command = [sys.executable, str(UPSTREAM), str(PIECES), str(PAUSE_S)]
    with running(command, stdout=subprocess.PIPE) as process:
        yield int(process.stdout.readline())


def until_up(url: str, process: subprocess.Popen, path: str) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx.get(f"{url}{path}", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{url} did not come up")


@pytest.fixture
def gateway(upstream, postgres, tmp_path, unused_tcp_port_factory) -> Iterator[int]:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys = tmp_path / "keys.toml"
    keys.write_text(f'[[keys]]\nsha256 = "{digest}"\ntenant = "bench-{time.time_ns()}"\n')
    config = tmp_path / "ragcache.toml"
    config.write_text(
        f'[api]\nbase_url = "http://127.0.0.1:{upstream}/v1"\n[model]\nname = "fake"\n'
        f'[store]\ndsn = "{postgres.app}"\nhome = "{tmp_path}"\n[embedding]\nmodel = ""\n'
    )
    port = unused_tcp_port_factory()
    command = [sys.executable, "-m", "ragcache", "serve", "-c", str(config), "--keys", str(keys)]
    command += ["--port", str(port), "--workers", os.environ.get("RAGCACHE_BENCH_WORKERS", "1")]
    with running(command) as process:
        until_up(f"http://127.0.0.1:{port}", process, "/readyz")
        yield port


@pytest.fixture
def unused_tcp_port_factory() -> Callable[[], int]:
    import socket

    def factory() -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return free.getsockname()[1]

    return factory


# --- a client that costs little ------------------------------------------------------------------


@dataclass
class Tally:
    done: int = 0
    errors: list[str] = field(default_factory=list)
    mixed: int = 0
    first_s: list[float] = field(default_factory=list)


def request_of(port: int, body: dict) -> bytes:
    encoded = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(encoded)}\r\n\r\n"
    )
    return head.encode() + encoded


def asked(mark: str, *, stream: bool) -> dict:
    rules = "The demurrage fee is charged for each day after the free time. " * 60
    content = f"{rules}\n\nWhat is the fee of container <{mark}>?"
    return {"model": "fake", "messages": [{"role": "user", "content": content}], "stream": stream}


async def stream_once(streams, port: int, mark: str, tally: Tally) -> None:
    reader, writer = streams
    began_s = time.perf_counter()
    writer.write(request_of(port, asked(mark, stream=True)))
    got = await reader.read(65536)
    tally.first_s.append(time.perf_counter() - began_s)
    pieces = [got]
    while not pieces[-1].endswith(b"0\r\n\r\n"):
        pieces.append(await reader.read(65536))
        if not pieces[-1]:
            break
    whole = b"".join(pieces)
    if not whole.startswith(b"HTTP/1.1 200") or b"[DONE]" not in whole or b'"error"' in whole:
        tally.errors.append(whole[:200].decode(errors="replace"))
    elif whole.count(b'"content"') - 1 != PIECES or whole.count(mark.encode()) != PIECES:
        tally.mixed += 1
    else:
        tally.done += 1


async def streams_for(port: int, seconds: float, name: str) -> tuple[float, Tally]:
    """Return the streams that ended in a second, by those that began in the time."""
    tally, numbers = Tally(), itertools.count()
    began_s = time.perf_counter()

    async def worker() -> None:
        streams = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        while time.perf_counter() - began_s < seconds:
            await stream_once(streams, port, f"{name}-{next(numbers)}-x", tally)
        streams[1].close()

    await asyncio.gather(*(worker() for _ in range(STREAMS)))
    return tally.done / (time.perf_counter() - began_s), tally


async def hits_for(port: int, seconds: float, connections: int = 32) -> float:
    """Return the whole answers in a second, to one and the same question."""
    request = request_of(port, asked("hit", stream=False))
    began_s, done = time.perf_counter(), 0

    async def worker() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() - began_s < seconds:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n", 1)[0])
            body = await reader.readexactly(length)
            assert head.startswith(b"HTTP/1.1 200"), head + body
            assert b'"hit"' in body
            done += 1
        writer.close()

    await asyncio.gather(*(worker() for _ in range(connections)))
    return done / (time.perf_counter() - began_s)


# --- what is promised ----------------------------------------------------------------------------


async def test_200_streams_keep_four_fifths_of_the_upstreams_pace(upstream, gateway):
    await streams_for(gateway, 3, "warm")
    bare, plain = await streams_for(upstream, SECONDS, "bare")
    ours, tally = await streams_for(gateway, SECONDS, "ours")
    print(
        f"\nload {os.getloadavg()[0]:.1f}: {STREAMS} streams of {PIECES} pieces, {SECONDS:g} s: "
        f"bare {bare:.1f}/s, through the gateway {ours:.1f}/s = {ours / bare:.1%}; "
        f"first piece p50 {statistics.median(plain.first_s) * 1e3:.0f} and "
        f"{statistics.median(tally.first_s) * 1e3:.0f} ms; "
        f"{len(tally.errors)} errors, {tally.mixed} mixed of {tally.done}"
    )
    assert not tally.errors, tally.errors[:3]
    assert not tally.mixed
    assert ours / bare >= 0.80


LITELLM_CONFIG = """
model_list:
  - model_name: fake
    litellm_params: {{model: openai/fake, api_base: "http://127.0.0.1:{port}/v1", api_key: none}}
litellm_settings:
  cache: true
  cache_params: {{type: local}}
general_settings: {{master_key: "{key}"}}
"""


@pytest.mark.skipif(not LITELLM, reason="RAGCACHE_LITELLM does not name a litellm command")
async def test_three_times_the_exact_hits_of_litellms_proxy(
    upstream, gateway, tmp_path, unused_tcp_port_factory
):
    config, port = tmp_path / "litellm.yaml", unused_tcp_port_factory()
    config.write_text(LITELLM_CONFIG.format(port=upstream, key=KEY))
    command = [LITELLM, "--config", str(config), "--port", str(port), "--host", "127.0.0.1"]
    with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until_up(f"http://127.0.0.1:{port}", process, "/health/liveliness")
        for one in (gateway, port):
            await hits_for(one, 3)
        rates: dict[int, list[float]] = {gateway: [], port: []}
        for _ in range(3):
            for one, kept in rates.items():
                kept.append(await hits_for(one, 5))
    ours, theirs = (statistics.median(kept) for kept in rates.values())
    print(
        f"\nload {os.getloadavg()[0]:.1f}: exact hits a second: {ours:.0f}, "
        f"LiteLLM {theirs:.0f}: {ours / theirs:.1f} times"
    )
    assert ours >= 3 * theirs
