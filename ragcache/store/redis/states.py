"""States kept between requests, in Redis: conversations, what the guard has learned."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ...types import JsonObject, TenantId
from . import entries, places
from .link import Link, Value
from .server import Server
from .storing import lifetime_ms


class RedisStates:
    """The part of a store that keeps states; whoever has it lends the way to the server."""

    _link: Link
    _lookup_timeout_s: float

    @abstractmethod
    async def _ready(self) -> Server:
        """Look once at the server."""

    @abstractmethod
    async def _write(self, name: str, prefix: str, *values: Value, keys: Sequence[str] = ()) -> Any:
        """Run a script that writes."""

    async def recall(
        self, tenant: TenantId, kind: str, key: str, *, now: datetime
    ) -> JsonObject | None:
        """Return a state kept between requests."""
        place = f"{places.prefix(tenant)}s:{places.state(kind, key)}"
        await self._ready()
        value, until = await self._link.tell(
            "HMGET", place, "value", "until", timeout_s=self._lookup_timeout_s, near=place
        )
        if value is None or until is None or int(until) <= entries.micros(now):
            return None
        found = json.loads(value)
        return found if isinstance(found, dict) else None

    async def remember(
        self,
        tenant: TenantId,
        kind: str,
        key: str,
        value: JsonObject,
        *,
        now: datetime,
        expire_at: datetime,
        principal: str = "",
    ) -> None:
        """Keep a state until then; `principal` is whose it is, so that it can be erased."""
        await self._write(
            "remember",
            places.prefix(tenant),
            places.state(kind, key),
            json.dumps(dict(value)),
            entries.micros(expire_at),
            max(1, lifetime_ms(now, expire_at)),
            places.writer(tenant, principal) if principal else "",
        )

    async def exchange(
        self,
        tenant: TenantId,
        kind: str,
        key: str,
        value: JsonObject,
        *,
        seen: int,
        now: datetime,
        expire_at: datetime,
    ) -> bool:
        """Keep a state in place of the version that was seen; return whether it is kept."""
        kept = await self._write(
            "exchange",
            places.prefix(tenant),
            places.state(kind, key),
            json.dumps(dict(value)),
            entries.micros(expire_at),
            max(1, lifetime_ms(now, expire_at)),
            seen,
            entries.micros(now),
        )
        return bool(kept)
