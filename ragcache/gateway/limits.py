"""How much at a time: bodies, requests under way, and time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.types import Receive

from .faults import Fault, busy, out_of_time

T = TypeVar("T")


class ClientLeft(Exception):  # noqa: N818 -- no error: the one who asked is gone
    """The client closed the connection before it was answered."""


class Slots:
    """Requests under way, in all and by tenant.

    Args:
        total: Most of them.
        by_tenant: Most of one tenant, so that none keeps the others out.
    """

    def __init__(self, *, total: int, by_tenant: int) -> None:
        self._total = total
        self._by_tenant = by_tenant
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._taken.total()

    @contextlib.contextmanager
    def taken(self, tenant: str) -> Iterator[None]:
        """Hold a slot of a tenant for the time of a block.

        Raises:
            Fault: 503 where the server is full, 429 where the tenant has its share.
        """
        if len(self) >= self._total:
            raise busy(503, "the server is full: ask again shortly", code="overloaded")
        if self._taken[tenant] >= self._by_tenant:
            raise busy(
                429,
                f"{self._by_tenant} requests of yours are under way, which is the limit",
                code="rate_limit_exceeded",
            )
        self._taken[tenant] += 1
        try:
            yield
        finally:
            self._taken[tenant] -= 1
            if not self._taken[tenant]:
                del self._taken[tenant]


async def body_of(headers: Headers, receive: Receive, *, max_bytes: int, limit_s: float) -> bytes:
    """Return the body of a request.

    Raises:
        Fault: 413 for one that is too large, 408 for one that takes too long, 415 for a packed one.
        ClientLeft: The connection was closed before its end.
    """
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Fault(415, "send the body without Content-Encoding", code="unsupported_encoding")
    told = headers.get("content-length", "")
    if told.isdigit() and int(told) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(limit_s):
            return await _whole_body(receive, max_bytes)
    except TimeoutError as error:
        raise Fault(
            408,
            f"the body did not come within {limit_s:g} s",
            code="body_timeout",
            headers={"Connection": "close"},
        ) from error


async def _whole_body(receive: Receive, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > max_bytes:
            raise _too_large(max_bytes)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _too_large(max_bytes: int) -> Fault:
    return Fault(
        413,
        f"the body is larger than {max_bytes} bytes, the limit here",
        code="body_too_large",
        headers={"Connection": "close"},
    )


async def while_wanted(receive: Receive, work: Coroutine[Any, Any, T], *, limit_s: float) -> T:
    """Return what the work gives, as long as the client waits for it.

    Raises:
        ClientLeft: The connection was closed; the work has ended by then.
        Fault: 504, the work took too long.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_left(receive))
    try:
        await asyncio.wait({working, leaving}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientLeft if leaving.done() else out_of_time(limit_s)
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
