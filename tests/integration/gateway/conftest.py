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
from tests.doubles.upstream import Upstream, serving


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

_WHO = ("acme", "globex")


@pytest.fixture(scope="session")
def _upstream() -> Iterator[Upstream]:
    with serving(Upstream()) as running:
        yield running


@pytest.fixture
def upstream(_upstream: Upstream) -> Upstream:
    """A fake provider on loopback, with nothing said yet."""
    fresh = Upstream()
    fresh.base_url = _upstream.base_url
    vars(_upstream).update(vars(fresh))
    return _upstream


def settings_of(upstream: Upstream, postgres: Dsns, home: Path, **sections: Any) -> Settings:
    """Return settings over the fake provider and the real Postgres."""
    return Settings(
        **{
            "api": {"base_url": upstream.base_url, "api_key": "of-the-upstream", "attempts": 1},
            "model": {"name": "fake"},
            "store": {"dsn": postgres.app, "home": home},
            "embedding": {"model": ""},
            "budgets": PATIENT,
            "telemetry": {"record": False},
            **sections,
        }
    )


@pytest.fixture
def serve(postgres: Dsns, upstream: Upstream, tmp_path: Path) -> Iterator[Serve]:
    """Start a gateway: keyword arguments are settings of the section `gateway`."""
    with ExitStack() as stack:

        def start(*, sections: Any = None, **gateway: Any) -> Served:
            tenants = {who: f"{who}-{secrets.token_hex(6)}" for who in _WHO}
            keys = {who: secrets.token_urlsafe(24) for who in tenants}
            given = {"keys_file": keys_file(tmp_path, keys, tenants), **gateway}
            sections = {"gateway": given, **(sections or {})}
            settings = settings_of(upstream, postgres, tmp_path, **sections)
            return Served(stack.enter_context(served(settings)), keys, tenants)

        yield start


@pytest.fixture(scope="session")
def _shared(
    postgres: Dsns, _upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    """Give the address of a gateway with its defaults, and one after another its keys."""
    home = tmp_path_factory.mktemp("gateway")
    keys = {f"t{n}-{secrets.token_hex(6)}": secrets.token_urlsafe(24) for n in range(400)}
    given = {"keys_file": keys_file(home, keys, {tenant: tenant for tenant in keys})}
    with served(settings_of(_upstream, postgres, home, gateway=given)) as url:
        yield url, iter(keys.items())


@pytest.fixture
def gateway(_shared: tuple[str, Iterator[tuple[str, str]]], upstream: Upstream) -> Served:
    """A gateway with its defaults; its tenants are this test's alone."""
    url, left = _shared
    mine = dict(zip(_WHO, left, strict=False))
    return Served(
        url,
        keys={who: key for who, (_, key) in mine.items()},
        tenants={who: tenant for who, (tenant, _) in mine.items()},
    )
