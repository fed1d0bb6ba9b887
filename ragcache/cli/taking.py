"""Take entries out of service, or put one into it, in whatever store the settings name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .places import database, settings_from

if TYPE_CHECKING:
    from ..settings import StoreSettings
    from ..store.redis.link import Link
    from ..store.selection import Purged, Selection

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The store of the settings, or the Postgres whose ops DSN was given."""

    config: Path | None
    dsn: str | None

    @property
    def store(self) -> StoreSettings:
        """Return the settings of the store."""
        return settings_from(self.config).store

    @property
    def in_redis_alone(self) -> bool:
        """Whether entries are in Redis and nowhere else: what is taken there is gone for good."""
        return self.dsn is None and self.store.kind == "redis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What is to be taken out of service, and how."""

    selection: Selection
    principal: str | None
    erase: bool
    hard: bool
    reason: str


def take(where: Where, what: Taken, *, dry_run: bool) -> Purged:
    """Count what would be taken, or take it; in Redis too where that keeps copies."""
    if where.in_redis_alone:
        return _with_redis(where.store, lambda link: _in_redis(link, what, dry_run=dry_run))
    with database(where.config, where.dsn) as place:
        taken = _in_postgres(place.ops, what, dry_run=dry_run)
    if "redis" in where.store.kind and not dry_run:
        for tenant in {*taken.entries, *filter(None, [what.selection.tenant])}:
            _drop_copies(where.store, tenant)
    return taken


def promote(where: Where, tenant: str, entry: str, reason: str) -> bool:
    """Put a quarantined entry into service; return whether there was one."""
    if where.in_redis_alone:
        from ..store.redis import purging as redis

        return _with_redis(
            where.store, lambda link: redis.promote(link, tenant, entry, reason=reason)
        )
    from ..store import purging

    with database(where.config, where.dsn) as place:
        return purging.promote(place.ops, tenant, entry, reason=reason)


def _in_postgres(ops: str, what: Taken, *, dry_run: bool) -> Purged:
    from ..store import purging

    tenant = what.selection.tenant
    if tenant is not None and what.principal is not None:
        return purging.erase_principal(ops, tenant, what.principal, dry_run=dry_run)
    if tenant is not None and what.erase:
        return purging.erase_tenant(ops, tenant, dry_run=dry_run)
    return purging.purge(ops, what.selection, dry_run=dry_run, hard=what.hard, reason=what.reason)


def _in_redis(link: Link, what: Taken, *, dry_run: bool) -> Coroutine[Any, Any, Purged]:
    from ..store.redis import purging

    tenant = what.selection.tenant
    if tenant is not None and what.principal is not None:
        return purging.erase_principal(link, tenant, what.principal, dry_run=dry_run)
    if tenant is not None and what.erase:
        return purging.erase_tenant(link, tenant, dry_run=dry_run)
    return purging.purge_selected(link, what.selection, dry_run=dry_run, reason=what.reason)


def _drop_copies(store: StoreSettings, tenant: str) -> None:
    from ..store.redis import purging

    _with_redis(store, lambda link: purging.erase_tenant(link, tenant))


def _with_redis(store: StoreSettings, work: Callable[[Link], Coroutine[Any, Any, T]]) -> T:
    from ..store.redis.link import Link

    async def run() -> T:
        dsn = (store.redis_dsn or store.dsn).get_secret_value()
        link = Link(dsn, cluster=store.redis_cluster, pool_size=1, pool_wait_s=5.0, connect_s=5.0)
        try:
            return await work(link)
        finally:
            await link.close()

    return asyncio.run(run())
