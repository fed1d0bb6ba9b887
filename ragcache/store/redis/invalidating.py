"""Make entries unservable, in steps of which none keeps the server from others for long."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .link import Link

#: Names, or entries, in one script: a server does nothing else meanwhile.
BATCH = 200
#: Changed documents remembered for each tenant; then the older half is forgotten, and with it
#: whatever came from a document before.
CHANGED_MAX = 100_000


async def change(
    link: Link, prefix: str, digests: Sequence[str], told: str, *, timeout_s: float
) -> int:
    """Give documents new numbers; return how many entries that kills."""
    killed = 0
    for at in range(0, len(digests), BATCH):
        batch = json.dumps(digests[at : at + BATCH])
        killed += await link.within(prefix, "change", batch, told, CHANGED_MAX, timeout_s=timeout_s)
    return killed


async def purge(link: Link, prefix: str, told: str, *, timeout_s: float) -> int:
    """Remove every entry of a tenant; return how many. None is served from the first step on."""
    many, aside = await link.within(prefix, "purge", told, "", timeout_s=timeout_s)
    for name in aside:
        key = prefix + name.decode()
        while await link.within(prefix, "clear", BATCH, keys=(key,), timeout_s=timeout_s):
            pass
    return int(many)
