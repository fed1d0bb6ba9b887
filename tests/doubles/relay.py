"""A relay in front of a Unix socket, that can swallow what it is given, or cut at a word."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_NAME = ".s.PGSQL.5432"


class Relay:
    """Passes bytes on, until told otherwise.

    `swallowing`: bytes are taken and go nowhere, as a network does that lost its route.
    `cut_at`: as soon as a client has sent this, it is passed on and the client is cut off: it
    never learns the outcome.
    """

    def __init__(self, target: Path, own: Path) -> None:
        self.swallowing = False
        self.cut_at = b""
        self.cuts = 0
        self._target, self._own = target, own
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> asyncio.AbstractServer:
        return await asyncio.start_unix_server(self._joined, str(self._own))

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):  # the end of a relay is no error
                there, back = await asyncio.open_unix_connection(str(self._target))
                try:
                    cut = asyncio.Event()
                    pumps = [
                        asyncio.ensure_future(self._to_server(reader, back, cut)),
                        asyncio.ensure_future(self._to_client(there, writer, cut)),
                    ]
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
                finally:
                    back.close()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _to_server(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if self.swallowing:
                continue
            if self.cut_at and self.cut_at in data:
                cut.set()
            writer.write(data)
            await writer.drain()
            if cut.is_set():
                self.cuts += 1
                await asyncio.sleep(0.05)  # the server has it, and acts on it
                return

    async def _to_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if self.swallowing or cut.is_set():
                continue
            writer.write(data)
            await writer.drain()

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextmanager
def relayed(dsn: str) -> Iterator[tuple[Relay, str]]:
    """Stand between a DSN's server and its clients; yield the relay and the DSN through it."""
    host = str(conninfo_to_dict(dsn)["host"])
    with tempfile.TemporaryDirectory(prefix="rc-relay-") as folder:
        relay = Relay(Path(host) / _NAME, Path(folder) / _NAME)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        server = asyncio.run_coroutine_threadsafe(relay.serve(), loop).result(10)
        try:
            yield relay, make_conninfo(dsn, host=folder)
        finally:
            loop.call_soon_threadsafe(server.close)
            asyncio.run_coroutine_threadsafe(relay.close(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()
