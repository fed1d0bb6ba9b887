"""States kept between requests, in Postgres: conversations, what the guard has learned."""

from __future__ import annotations

import json
from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any

from ..types import JsonObject, TenantId
from .queries import queries
from .rows import storable
from .session import Connection, Rounds

_STATE = queries("state")


class States:
    """The part of a store that keeps states; whoever has it lends the connections."""

    @abstractmethod
    def _rounds(self, tenant: TenantId, **options: Any) -> AbstractAsyncContextManager[Rounds]:
        """Borrow a connection to read."""

    @abstractmethod
    def _writing(self, tenant: TenantId, **options: Any) -> AbstractAsyncContextManager[Connection]:
        """Borrow a connection to write."""

    async def recall(
        self, tenant: TenantId, kind: str, key: str, *, now: datetime
    ) -> JsonObject | None:
        """Return a state kept between requests."""
        values = {"tenant": storable(tenant), "kind": kind, "key": storable(key), "now": now}
        async with self._rounds(tenant) as rounds:
            rows = await rounds.ask(_STATE["recall"], values, last=True)
        return rows[0][0] if rows else None

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
        values = {
            "tenant": storable(tenant),
            "kind": kind,
            "key": storable(key),
            "principal": storable(principal) if principal else "",
            "value": json.dumps(dict(value)),
            "now": now,
            "expire_at": expire_at,
        }
        async with self._writing(tenant) as connection:
            await connection.execute(_STATE["remember"], values)

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
        values = {
            "tenant": storable(tenant),
            "kind": kind,
            "key": storable(key),
            "value": json.dumps(dict(value)),
            "seen": seen,
            "now": now,
            "expire_at": expire_at,
        }
        async with self._writing(tenant) as connection:
            return (await connection.execute(_STATE["exchange"], values)).rowcount == 1
