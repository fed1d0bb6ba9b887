"""Look at everything that serving from Redis needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import StoreError
from ..findings import Finding
from . import server
from .link import Link


async def doctor(dsn: str, *, cluster: bool = False) -> tuple[Finding, ...]:
    """Look at the server; raises nothing."""
    link = Link(dsn, cluster=cluster, pool_size=1, pool_wait_s=2.0, connect_s=2.0)
    try:
        seen = await server.look(link)
        memory = await link.tell("INFO", "memory", timeout_s=5.0)
    except StoreError as error:
        return (Finding(name="redis", ok=False, detail=str(error)),)
    finally:
        await link.close()
    return (
        Finding(name="redis", ok=True, detail=seen.name),
        Finding(name="vectors", ok=True, detail=seen.detail.removeprefix(f"{seen.name}, ")),
        eviction(memory),
    )


def eviction(memory: Mapping[str, Any]) -> Finding:
    """What happens when memory is full: a server that evicts nothing stores nothing then."""
    limit, policy = memory.get("maxmemory", 0), memory.get("maxmemory_policy", "")
    if not limit:
        detail = "no maxmemory: set one, with maxmemory-policy volatile-ttl"
    elif policy == "noeviction":
        detail = "maxmemory-policy noeviction: once full, answers are served and none is stored"
    else:
        detail = f"maxmemory-policy {policy}"
    return Finding(name="eviction", ok=True, detail=detail)
