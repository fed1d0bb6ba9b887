"""A Redis that keeps copies of entries for which another store answers."""

from __future__ import annotations

import json
from dataclasses import replace

from ...types import Entry
from ..notices import Notice
from . import invalidating, places
from .store import RedisStore


class RedisCopies(RedisStore):
    """Copies of entries, without vectors; nobody has to believe them."""

    async def copy(self, entry: Entry) -> None:
        """Keep a copy of an entry in place of an older one."""
        plain = replace(entry, vector=None)
        begun = await self.snapshot(entry.scope, ())
        await self._put(plain, begun, replacing=True)

    async def heed(self, heard: Notice) -> None:
        """Drop what an invalidation of the other store makes worthless.

        The documents that changed where the notice says which, else all copies of the tenant.
        """
        prefix, timeout_s = places.prefix_of(heard.digest), self._write_timeout_s
        told = json.dumps({"kind": heard.kind, "tenant": heard.digest})
        await self._ready()
        if heard.kind == "change" and heard.names:
            await invalidating.change(self._link, prefix, heard.names, told, timeout_s=timeout_s)
        else:
            await invalidating.purge(self._link, prefix, told, timeout_s=timeout_s)

    async def forget(self) -> None:
        """Drop all copies of all tenants: invalidations of the other store may have been missed."""
        async for clock in self._link.keys("rc1:{*}:clock", timeout_s=self._write_timeout_s):
            digest = clock.removeprefix("rc1:{").removesuffix("}:clock")
            await self.heed(Notice(kind="purge", digest=digest))
