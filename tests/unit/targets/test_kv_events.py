"""KV events are read in order; what was missed is replayed, or the mirror is told to forget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from ragcache.errors import ConfigError, TargetError
from ragcache.layout.engine import AllBlocksCleared, BlockRemoved, BlockStored, EngineMirror
from ragcache.targets.kv_events import KvEventSubscriber, decoded, step_of


def stored(name: int, parent: int | None = None, **fields: Any) -> dict[str, Any]:
    tokens = list(range(name * 4, name * 4 + 4))
    event = {"block_hashes": [name], "parent_block_hash": parent, "token_ids": tokens}
    return {"type": "BlockStored", **event, "block_size": 4, "medium": "GPU", **fields}


def batch(*events: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode([1.0, list(events), 0])


class Publisher:
    """Publishes as an engine does, and keeps what it published for replay."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"ipc://{folder}/pub"
        self.replay_endpoint = f"ipc://{folder}/replay"
        self.context = zmq.asyncio.Context()
        self.kept: list[tuple[int, bytes]] = []
        self.number = 0
        self.open()

    def open(self) -> None:
        self.pub = self.context.socket(zmq.XPUB)
        self.pub.linger = 0
        self.pub.bind(self.endpoint)

    async def subscribed(self) -> None:
        await asyncio.wait_for(self.pub.recv(), 10)

    async def publish(self, *events: dict[str, Any], lost: bool = False) -> None:
        payload = batch(*events)
        self.kept.append((self.number, payload))
        if not lost:
            await self.pub.send_multipart((b"kv", self.number.to_bytes(8, "big"), payload))
        self.number += 1

    async def serve_replay(self) -> None:
        with self.context.socket(zmq.ROUTER) as socket:
            socket.linger = 0
            socket.bind(self.replay_endpoint)
            while True:
                who, _, begun = await socket.recv_multipart()
                for number, payload in self.kept:
                    if number >= int.from_bytes(begun, "big"):
                        frame = (who, b"", b"kv", number.to_bytes(8, "big"), payload)
                        await socket.send_multipart(frame)
                end = (-1).to_bytes(8, "big", signed=True)
                await socket.send_multipart((who, b"", b"", end, b""))


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    publisher = Publisher(tmp_path)
    yield publisher
    publisher.context.destroy(linger=0)


class Followed:
    """A mirror that follows, and what it was told."""

    def __init__(self) -> None:
        self.mirror = EngineMirror()
        self.losses = 0

    def lost(self) -> None:
        self.losses += 1
        self.mirror.apply(AllBlocksCleared())

    async def lost_once(self) -> None:
        async with asyncio.timeout(10):
            while not self.losses:
                await asyncio.sleep(0.005)

    async def holds(self, blocks: int) -> None:
        async with asyncio.timeout(10):
            while len(self.mirror) != blocks:
                await asyncio.sleep(0.005)


@pytest.fixture
def followed() -> Followed:
    return Followed()


@pytest.fixture
async def following(publisher: Publisher, followed: Followed) -> AsyncIterator[KvEventSubscriber]:
    subscriber = KvEventSubscriber(
        publisher.endpoint, take=followed.mirror.apply, lost=followed.lost, topic="kv"
    )
    async with subscriber:
        await publisher.subscribed()
        yield subscriber


async def test_a_mirror_holds_what_was_stored_and_not_removed(publisher, followed, following):
    await publisher.publish(stored(0), stored(1, parent=0))
    await publisher.publish(stored(2, parent=1), {"type": "BlockRemoved", "block_hashes": [1]})
    await followed.holds(2)
    assert followed.mirror.block_size == 4
    assert followed.mirror.cached_tokens([*range(4), 99]) == 4
    assert followed.losses == 0
    assert following.batches == 2


async def test_a_gap_without_replay_forgets_and_goes_on(publisher, followed, following):
    await publisher.publish(stored(0))
    await publisher.publish(stored(1, parent=0), lost=True)
    await publisher.publish(stored(7))
    await followed.lost_once()
    await followed.holds(1)
    assert followed.mirror.cached_tokens([*range(4), 99]) == 0
    assert followed.mirror.cached_tokens([*range(28, 32), 99]) == 4


async def test_a_restarted_engine_empties_the_mirror(publisher, followed, following):
    for name in range(3):
        await publisher.publish(stored(name))
    await followed.holds(3)
    publisher.number = 0
    await publisher.publish(stored(9))
    await followed.holds(1)
    assert followed.losses == 1


async def test_an_engine_that_went_away_empties_the_mirror(publisher, followed, following):
    await publisher.publish(stored(0))
    await followed.holds(1)
    publisher.pub.close()
    await followed.holds(0)
    assert followed.losses == 1


async def test_missed_batches_are_replayed(publisher, followed):
    replaying = asyncio.create_task(publisher.serve_replay())
    await publisher.publish(stored(0), lost=True)  # before anybody listened
    subscriber = KvEventSubscriber(
        publisher.endpoint,
        take=followed.mirror.apply,
        lost=followed.lost,
        replay_endpoint=publisher.replay_endpoint,
    )
    async with subscriber:
        await publisher.subscribed()
        await publisher.publish(stored(1, parent=0))
        await followed.holds(2)
        await publisher.publish(stored(2, parent=1), lost=True)
        await publisher.publish(stored(3, parent=2))
        await followed.holds(4)
    replaying.cancel()
    assert followed.losses == 0
    assert followed.mirror.orphans == 0


async def test_a_batch_that_cannot_be_read_forgets_and_goes_on(publisher, followed, following):
    await publisher.publish(stored(0))
    await followed.holds(1)
    await publisher.pub.send_multipart((b"kv", (1).to_bytes(8, "big"), b"\xc1"))
    await followed.lost_once()
    publisher.number = 2
    await publisher.publish(stored(5))
    await followed.holds(1)
    assert followed.losses == 1


@pytest.mark.parametrize(
    ("number", "expected", "step"),
    [(5, None, "next"), (5, 5, "next"), (7, 5, "gap"), (0, 5, "restart"), (3, 5, "restart")],
)
def test_numbers_tell_gaps_and_restarts(number, expected, step):
    assert step_of(number, expected) == step


def test_events_of_other_tiers_and_groups_are_left_out():
    payload = batch(
        stored(0),
        stored(1, medium="CPU"),
        stored(2, group_idx=1),
        {"type": "BlockRemoved", "block_hashes": [0], "medium": "CPU"},
        {"type": "BlockRemoved", "block_hashes": [0], "medium": None},
        {"type": "SomethingNew", "medium": "GPU"},
        {"type": "AllBlocksCleared"},
    )
    kinds = [type(event) for event in decoded(payload)]
    assert kinds == [BlockStored, BlockRemoved, AllBlocksCleared]


def test_a_salt_starts_a_chain_of_its_own():
    (event,) = decoded(batch(stored(0, extra_keys=[["salt"]])))
    mirror = EngineMirror()
    mirror.apply(event)
    assert mirror.cached_tokens([*range(4), 9], salt="salt") == 4
    assert mirror.cached_tokens([*range(4), 9]) == 0


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode([1.0]), batch({})])
def test_what_is_no_batch_is_refused(payload):
    with pytest.raises(TargetError, match="could not be read"):
        decoded(payload)


async def test_a_malformed_endpoint_is_named(followed):
    subscriber = KvEventSubscriber("nowhere", take=followed.mirror.apply, lost=followed.lost)
    with pytest.raises(ConfigError, match="nowhere"):
        await subscriber.start()
