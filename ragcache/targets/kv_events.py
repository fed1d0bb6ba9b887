"""What a vLLM engine says of its KV cache: the events that it publishes over ZMQ, in order.

Format (vLLM 0.32, distributed/kv_events.py): a message is topic, sequence number (8 bytes, big
endian) and a msgpack array (time, events, data-parallel rank); an event is a map with its type.
A replay endpoint answers a start number with every batch that it still keeps, then with -1.

    async with KvEventSubscriber("ipc:///run/vllm/kv", take=mirror.apply, lost=forget):
        ...
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from ..errors import ConfigError, TargetError
from ..layout.engine import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent

if TYPE_CHECKING:
    import zmq.asyncio

_log = logging.getLogger("ragcache")

_END = -1
_SEQUENCE_BYTES = 8
_REPLAY_S = 5.0

#: next: as expected. gap: some are missing. restart: the numbers of another life.
Step = Literal["next", "gap", "restart"]


class KvEventSubscriber:
    """Follows one engine, so that a mirror holds what its KV cache holds.

    Args:
        endpoint: Where the engine publishes, seen from here: `ipc:///path`, `tcp://host:5557`.
        take: Gets every event, in order, on the event loop: `EngineMirror.apply`.
        lost: Called where what was taken so far says nothing any more: the engine is another
            one, went away, or events were missed and cannot be replayed. Forget everything; the
            events that follow are whole again.
        topic: As the engine's `kv_events_config` says.
        replay_endpoint: Where missed events can be asked for; without one they are lost.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        take: Callable[[KvEvent], None],
        lost: Callable[[], None],
        topic: str = "",
        replay_endpoint: str = "",
    ) -> None:
        self.endpoint = endpoint
        #: Batches taken, and how often `lost` was called.
        self.batches = 0
        self.losses = 0
        self._take = take
        self._lost = lost
        self._topic = topic
        self._replay_endpoint = replay_endpoint
        self._expected: int | None = None
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._context: zmq.asyncio.Context | None = None

    async def start(self) -> None:
        """Subscribe. An engine that is not there yet is waited for.

        Raises:
            ConfigError: pyzmq or msgspec is not installed, or the endpoint is malformed.
        """
        zmq = _zmq()
        self._context = zmq.asyncio.Context()
        socket = self._context.socket(zmq.SUB)
        socket.linger = 0
        connection = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            socket.connect(self.endpoint)
        except zmq.ZMQError as error:
            await self.close()
            raise ConfigError(f"no KV events from {self.endpoint!r}: {error}") from error
        socket.subscribe(self._topic)
        self._tasks = (
            asyncio.create_task(self._follow(socket), name="ragcache-kv-events"),
            asyncio.create_task(self._watch(connection), name="ragcache-kv-connection"),
        )

    async def close(self) -> None:
        """Unsubscribe."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = ()
        if self._context is not None:
            self._context.destroy(linger=0)
            self._context = None

    async def __aenter__(self) -> Self:
        """Subscribe."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Unsubscribe."""
        await self.close()

    async def _follow(self, socket: zmq.asyncio.Socket) -> None:
        while True:
            _topic, number, payload = await socket.recv_multipart()
            await self._batch(int.from_bytes(number, "big", signed=True), payload)

    async def _watch(self, connection: zmq.asyncio.Socket) -> None:
        """Notice that the engine's end of the connection went away: events may be missed now."""
        while True:
            await connection.recv_multipart()
            self._forget("the connection broke")

    async def _batch(self, number: int, payload: bytes) -> None:
        step = step_of(number, self._expected)
        if step == "restart":
            self._forget("its numbers began anew")
        if step != "next" or (self._expected is None and number):
            await self._catch_up(number)
        self._apply(number, payload)

    async def _catch_up(self, number: int) -> None:
        """Ask for the batches before `number`; where they cannot be had, nothing is known."""
        begun = self._expected or 0
        missing = await self._replayed(begun, number)
        whole = [at for at, _ in missing] == list(range(begun, number))
        if not whole and self._expected is not None:
            self._forget("events were missed")
        for at, payload in missing:
            self._apply(at, payload)

    async def _replayed(self, begun: int, end: int) -> list[tuple[int, bytes]]:
        if not self._replay_endpoint or self._context is None:
            return []
        zmq = _zmq()
        with self._context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(self._replay_endpoint)
            try:
                async with asyncio.timeout(_REPLAY_S):
                    await socket.send_multipart((b"", begun.to_bytes(_SEQUENCE_BYTES, "big")))
                    return [batch async for batch in _batches(socket) if begun <= batch[0] < end]
            except TimeoutError:
                _log.warning("%s did not replay its KV events in time", self._replay_endpoint)
                return []

    def _apply(self, number: int, payload: bytes) -> None:
        try:
            events = decoded(payload)
        except TargetError as error:
            _log.warning("%s published what is no batch of KV events: %s", self.endpoint, error)
            self._forget("a batch could not be read")
            events = ()
        self._expected = number + 1
        self.batches += 1
        for event in events:
            self._take(event)

    def _forget(self, reason: str) -> None:
        _log.info("what %s holds is not known any more: %s", self.endpoint, reason)
        self.losses += 1
        self._expected = None
        self._lost()


def step_of(number: int, expected: int | None) -> Step:
    """Return how a batch stands to those before it. Numbers begin with 0 in each engine's life."""
    if expected is None or number == expected:
        return "next"
    if number > expected:
        return "gap"
    return "restart"


async def _batches(socket: Any) -> Any:
    while True:
        *_, number, payload = await socket.recv_multipart()
        at = int.from_bytes(number, "big", signed=True)
        if at == _END:
            return
        yield at, payload


def decoded(payload: bytes) -> tuple[KvEvent, ...]:
    """Read a batch; what concerns other caches than the engine's own KV blocks is left out.

    Raises:
        TargetError: It is not one.
    """
    import msgspec

    try:
        _time, events, *_ = msgspec.msgpack.decode(payload)
        return tuple(_events(events))
    except (msgspec.DecodeError, TypeError, ValueError, KeyError) as error:
        raise TargetError(f"KV events could not be read: {error!r}") from error


def _events(events: Iterable[Mapping[str, Any]]) -> Iterable[KvEvent]:
    for event in events:
        kind = event["type"]
        if kind == "AllBlocksCleared":
            yield AllBlocksCleared()
        elif not _is_primary(event):
            continue
        elif kind == "BlockStored":
            yield _stored(event)
        elif kind == "BlockRemoved":
            yield BlockRemoved(block_hashes=tuple(event["block_hashes"]))


def _is_primary(event: Mapping[str, Any]) -> bool:
    """Whether an event is of the cache that prompts are matched in: not an offload tier, and of
    the first group where a hybrid model has several.
    """
    return event.get("medium") in (None, "GPU") and event.get("group_idx") in (None, 0)


def _stored(event: Mapping[str, Any]) -> BlockStored:
    keys = event.get("extra_keys") or ()
    return BlockStored(
        block_hashes=tuple(event["block_hashes"]),
        parent_block_hash=event["parent_block_hash"],
        token_ids=tuple(event["token_ids"]),
        block_size=event["block_size"],
        extra_keys=tuple(tuple(str(key) for key in of_block or ()) for of_block in keys),
    )


def _zmq() -> Any:
    try:
        import zmq
        import zmq.asyncio
    except ImportError as error:
        raise ConfigError(
            "KV events need pyzmq and msgspec: pip install 'ragcache-middleware[vllm]'"
        ) from error
    return zmq
