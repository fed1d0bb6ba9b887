"""Hear of invalidations that other processes have made in this Redis."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ..notices import Notice, parsed
from .errors import translated

#: Every tenant has a channel of its own, so that a user can be kept to one.
_CHANNELS = "rc1:*:notices"


async def notices(dsn: str) -> AsyncGenerator[Notice, None]:
    """Yield notices as they are made, on a connection of its own; of all nodes of a cluster.

    What is kept in memory on the strength of it must be dropped when this raises, since notices
    may have been missed.

    Raises:
        StoreUnavailableError: The connection was lost.
    """
    client = Redis.from_url(dsn, protocol=2, retry=Retry(NoBackoff(), 0))
    with translated():
        async with client, client.pubsub(ignore_subscribe_messages=True) as channel:
            await channel.psubscribe(_CHANNELS)
            async for message in channel.listen():
                heard = parsed(message["data"].decode("utf-8", "replace"))
                if heard is not None:
                    yield heard
