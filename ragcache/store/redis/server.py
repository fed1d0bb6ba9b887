"""What the server is and can do, asked once before anything is served."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import StoreError, StoreUnavailableError
from .link import Link

#: How likeness is searched: vector sets, a search module, or not at all.
Vectors = Literal["sets", "search", ""]
#: Scripts that say what they do, and expiries that only grow, came with Redis 7.0.
MINIMUM = (7, 0)
_TIMEOUT_S = 5.0
NO_VECTORS = "exact hits only: the server has neither vector sets (Redis 8) nor a search module"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that may be used."""

    name: str
    vectors: Vectors
    #: What an operator should know.
    detail: str


async def look(link: Link) -> Server:
    """Ask the server what it is.

    Raises:
        StoreUnavailableError: Not reachable, still loading, or a replica.
        StoreError: Too old, a cluster that was not said to be one, or a right is missing.
    """
    facts = await _facts(link)
    name = _named(facts)
    if fault := _fault(facts, name, cluster=link.cluster):
        raise StoreError(fault)
    if facts.get("role", "master") != "master":
        raise StoreUnavailableError(f"{name} is a replica: give the DSN of the primary")
    vectors, why = await _vectors(link)
    ways = {"sets": "vector sets", "search": "the search module", "": why}
    return Server(name=name, vectors=vectors, detail=f"{name}, {ways[vectors]}")


async def _facts(link: Link) -> Mapping[str, Any]:
    facts: dict[str, Any] = {}
    for section in ("server", "replication", "cluster"):
        facts |= await link.tell("INFO", section, timeout_s=_TIMEOUT_S)
    return facts


def _named(facts: Mapping[str, Any]) -> str:
    valkey = facts.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {facts.get('redis_version', 'unknown')}"


def _fault(facts: Mapping[str, Any], name: str, *, cluster: bool) -> str:
    version = str(facts.get("redis_version", "0.0")).split(".")
    if tuple(int(part) for part in version[:2] if part.isdigit()) < MINIMUM:
        return f"{name} is too old: ragcache needs Redis 7.0, Valkey 7.2 or later"
    if facts.get("cluster_enabled") and not cluster:
        return f"{name} is a cluster: set store.redis_cluster = true"
    if cluster and not facts.get("cluster_enabled"):
        return f"{name} is no cluster: leave store.redis_cluster out"
    return ""


async def _vectors(link: Link) -> tuple[Vectors, str]:
    if await _knows(link, "vsim"):
        return "sets", ""
    if not await _knows(link, "ft.search"):
        return "", NO_VECTORS
    fault = await _search_fault(link)
    return ("", f"exact hits only: {fault}") if fault else ("search", "")


async def _knows(link: Link, command: str) -> bool:
    return bool(
        await link.tell("COMMAND LIST", "FILTERBY", "PATTERN", command, timeout_s=_TIMEOUT_S)
    )


async def _search_fault(link: Link) -> str:
    """A search module may be too old for vectors: only trying tells."""
    name = f"rc1:probe:{secrets.token_hex(8)}"
    try:
        await link.tell(*index_command(name, f"{name}:", 2), timeout_s=_TIMEOUT_S)
        await link.tell("FT.DROPINDEX", name, timeout_s=_TIMEOUT_S)
    except StoreUnavailableError:
        raise
    except StoreError as error:
        return f"the search module keeps no vectors ({error})"
    return ""


def index_command(name: str, prefix: str, dimensions: int) -> tuple[str | int, ...]:
    """Return the command that makes a tenant's index over vectors of one length.

    An index of the tenant's own: a foreign neighbour takes no place in its graph.
    """
    vector = ("VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", dimensions)
    return (
        *("FT.CREATE", name, "ON", "HASH", "PREFIX", 1, prefix, "SCHEMA"),
        *("place", "TAG", "standing", "TAG", "writer", "TAG", "until", "NUMERIC"),
        *(f"vector{dimensions}", *vector, "DISTANCE_METRIC", "COSINE"),
    )
