"""One of several processes at a time: a key with a token that runs out unless it is kept."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress

from ...errors import StoreError
from ...types import Scope
from ..turns import Turns, turn_digest
from . import places
from .link import Link


class RedisTurns(Turns):
    """The turns that this process has in one Redis.

    Args:
        link: The way to the server.
        wait_s: Longest time a caller waits for the server's word.
        lease_s: A turn is free again so long after its holder has died. While it lives it keeps
            its turn, however long the call takes.
    """

    def __init__(self, link: Link, *, wait_s: float, lease_s: float = 10.0) -> None:
        super().__init__(wait_s=wait_s)
        self._link = link
        self._lease_s = lease_s
        self._held: dict[str, tuple[str, asyncio.Task[None]]] = {}

    async def _take(self, scope: Scope, key: str) -> bool | None:
        turn, token = _turn(scope, key), secrets.token_hex(16)
        try:
            if not await self._ask("take", turn, token):
                return False
        except StoreError:
            return None
        self._held[turn] = (token, self._spawn(self._keep(turn, token)))
        return True

    async def _keep(self, turn: str, token: str) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(StoreError):  # the next try may come in time
                await self._ask("take", turn, token)

    async def _give(self, scope: Scope, key: str) -> None:
        turn = _turn(scope, key)
        token, keeping = self._held.pop(turn)
        keeping.cancel()
        # Ends first: a renewal on its way would take the turn again.
        await asyncio.gather(keeping, return_exceptions=True)
        with suppress(StoreError):  # the turn runs out by itself
            await self._link.ask("give", [turn], token, timeout_s=self._lease_s)

    async def _ask(self, name: str, turn: str, token: str) -> bool:
        lease_ms = int(self._lease_s * 1000)
        return bool(
            await self._link.ask(name, [turn], token, lease_ms, timeout_s=self._lease_s / 3)
        )


def _turn(scope: Scope, key: str) -> str:
    return f"{places.prefix(scope.tenant)}l:{turn_digest(scope, key).hex()}"
