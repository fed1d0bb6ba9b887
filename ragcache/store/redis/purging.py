"""Take stored answers out of Redis: a tenant, what a principal has left, or a selection.

Everything is done in steps, so that the server goes on answering others, and may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from ...errors import ConfigError
from ...keys import raw_hash
from ...types import Entry
from ..notices import name_digest, notice
from ..rows import lineage_names, raw_name, storable
from ..selection import Purged, Selection
from . import entries, places, server
from .invalidating import BATCH, change, purge
from .link import Link

_TIMEOUT_S = 5.0


async def purge_selected(
    link: Link, selection: Selection, *, dry_run: bool = False, reason: str = ""
) -> Purged:
    """Remove the selected entries, for good; write an audit row for each tenant touched.

    Raises:
        ConfigError: No tenant was named: Redis keeps no list of them.
    """
    if selection.tenant is None:
        raise ConfigError("in Redis entries are purged one tenant at a time: name it")
    prefix = places.prefix(selection.tenant)
    if not dry_run and selection.document is not None:
        digest = name_digest(selection.tenant, selection.document)
        told = notice("change", selection.tenant, (selection.document,))
        await change(link, prefix, [digest], told, timeout_s=_TIMEOUT_S)
    count = 0
    async for batch in _entries(link, prefix):
        chosen = [storable(entry.id) for entry in batch if selects(selection, entry)]
        count += len(chosen)
        if chosen and not dry_run:
            told = notice("purge", selection.tenant)
            values = (json.dumps(chosen), str(selection), reason, told)
            await link.within(prefix, "drop", *values, timeout_s=_TIMEOUT_S)
    return _purged(selection.tenant, count, dry_run=dry_run)


def selects(selection: Selection, entry: Entry) -> bool:
    """Return whether every criterion that was given holds."""
    older_than, document = selection.older_than, selection.document
    return (
        selection.namespace in (None, entry.scope.namespace)
        and selection.model in (None, entry.model)
        and selection.version in (None, entry.version)
        and selection.embedder in (None, entry.embedder)
        and selection.entry in (None, entry.id)
        and selection.writer in (None, entry.scope.principal)
        and (document is None or storable(document) in lineage_names(entry.lineage))
        and (older_than is None or entry.created_at < older_than)
    )


async def erase_principal(
    link: Link, tenant: str, principal: str, *, dry_run: bool = False
) -> Purged:
    """Remove what a principal has left, entries and states, for good; the count is of entries."""
    prefix = places.prefix(tenant)
    if dry_run:
        selection = Selection(tenant=tenant, writer=principal)
        return await purge_selected(link, selection, dry_run=True)
    who, subject = places.writer(tenant, principal), f"principal={raw_name(raw_hash(principal))}"
    count, more = 0, 1
    while more:
        values = (who, BATCH, subject, notice("purge", tenant))
        removed, more = await link.within(prefix, "erase", *values, timeout_s=_TIMEOUT_S)
        count += removed
    return _purged(tenant, count, dry_run=False)


async def erase_tenant(link: Link, tenant: str, *, dry_run: bool = False) -> Purged:
    """Remove everything of a tenant for good, but its clock and the audit."""
    prefix = places.prefix(tenant)
    if dry_run:
        count = int(await link.within(prefix, "count", timeout_s=_TIMEOUT_S))
        return _purged(tenant, count, dry_run=True)
    count = await purge(link, prefix, notice("purge", tenant), timeout_s=_TIMEOUT_S)
    kept = {f"{prefix}clock", f"{prefix}changed", f"{prefix}audit"}
    async for key in link.keys(f"{prefix}*", timeout_s=_TIMEOUT_S):
        if key not in kept:
            await link.tell("UNLINK", key, timeout_s=_TIMEOUT_S, near=key)
    return _purged(tenant, count, dry_run=False)


async def promote(link: Link, tenant: str, entry: str, *, reason: str = "") -> bool:
    """Put a quarantined entry into service; return whether there was one."""
    prefix = places.prefix(tenant)
    found = await link.within(prefix, "look", json.dumps([storable(entry)]), timeout_s=_TIMEOUT_S)
    if not any(state == b"quarantined" for _, _, state in found):
        return False
    known = await server.look(link)
    values = (storable(entry), "live", reason, "promote", notice("promote", tenant), known.vectors)
    return bool(await link.within(prefix, "quarantine", *values, timeout_s=_TIMEOUT_S))


async def _entries(link: Link, prefix: str) -> AsyncIterator[Sequence[Entry]]:
    """Yield the readable entries of a tenant, some at a time."""
    spaces = await link.tell("SMEMBERS", f"{prefix}spaces", timeout_s=_TIMEOUT_S, near=prefix)
    for space in sorted(spaces):
        key = f"{prefix}u:{space.decode()}"
        ids = await link.tell("ZRANGE", key, 0, -1, timeout_s=_TIMEOUT_S, near=key)
        for at in range(0, len(ids), BATCH):
            asked = json.dumps([id_.decode() for id_ in ids[at : at + BATCH]])
            rows = await link.within(prefix, "look", asked, timeout_s=_TIMEOUT_S)
            found = [entries.unpacked(body, state) for _, body, state in rows]
            yield [entry for entry in found if entry is not None]


def _purged(tenant: str, count: int, *, dry_run: bool) -> Purged:
    return Purged(entries={tenant: count} if count else {}, dry_run=dry_run)
