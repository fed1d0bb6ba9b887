"""A gateway on a real socket, over the real Postgres and a fake provider."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from ragcache.gateway.app import create_app
from ragcache.settings import Settings
from ragcache.store.roles import Dsns
from tests.doubles.upstream import Upstream


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs OpenAI's client for Node, where nobody says where it is."""
    if os.environ.get("RAGCACHE_NODE_MODULES"):
        return
    left_out = [item for item in items if "openai_for_node" in item.name]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


#: Of the machine's patience, not of the product's.
PATIENT = {"store_ms": 10_000, "embed_ms": 10_000, "put_ms": 10_000}


@dataclass(frozen=True)
class Served:
    """A running gateway, and a client of two of its tenants."""

    url: str
    keys: dict[str, str]
    tenants: dict[str, str]

    def post(self, path: str = "/v1/chat/completions", *, who: str = "acme", **options: Any):
        headers = {"Authorization": f"Bearer {self.keys[who]}"} | options.pop("headers", {})
        return httpx.post(f"{self.url}{path}", headers=headers, timeout=30, **options)

    def ask(self, question: str, *, who: str = "acme", headers: Any = None, **fields: Any):
        body = {"model": "fake", "messages": [{"role": "user", "content": question}], **fields}
        return self.post(json=body, who=who, headers=headers or {})


def keys_file(folder: Path, keys: dict[str, str], tenants: dict[str, str]) -> Path:
    """Write the file: whose key is whose tenant's."""
    rows = [
        f'[[keys]]\nid = "{who}"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n'
        f'tenant = "{tenants[who]}"\n'
        for who, key in keys.items()
    ]
    path = folder / f"keys-{secrets.token_hex(4)}.toml"
    path.write_text("\n".join(rows))
    return path


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """Serve on a free loopback port until the block ends; give the address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(settings), log_level="critical", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    until = time.monotonic() + 60
    while not server.started and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.005)
    assert server.started, "the gateway did not start"
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()


Serve = Callable[..., Served]


@pytest.fixture
def serve(postgres: Dsns, upstream: Upstream, tmp_path: Path) -> Iterator[Serve]:
    """Start a gateway: keyword arguments are settings of the section `gateway`."""
    with ExitStack() as stack:

        def start(**gateway: Any) -> Served:
            tenants = {who: f"{who}-{secrets.token_hex(6)}" for who in ("acme", "globex")}
            keys = {who: secrets.token_urlsafe(24) for who in tenants}
            sections = gateway.pop("sections", {})
            settings = Settings(
                **{
                    "api": {"base_url": upstream.base_url, "api_key": "of-the-upstream"},
                    "model": {"name": "fake"},
                    "store": {"dsn": postgres.app, "home": tmp_path},
                    "embedding": {"model": ""},
                    "budgets": PATIENT,
                    "telemetry": {"record": False},
                    "gateway": {"keys_file": keys_file(tmp_path, keys, tenants), **gateway},
                    **sections,
                }
            )
            return Served(stack.enter_context(served(settings)), keys, tenants)

        yield start


@pytest.fixture
def gateway(serve: Serve) -> Served:
    """A gateway with its defaults."""
    return serve()
