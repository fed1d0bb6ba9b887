"""Several servers behind one target: what happens when one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from ragcache.errors import ConfigError, TargetError
from ragcache.targets.vllm import VLLMTarget
from ragcache.types import Call, Message
from tests.doubles.strict import KNOWN_FIELDS
from tests.doubles.upstream import Reply, Upstream, serving


def call(text: str = "What is the fee?") -> Call:
    return Call(model="m", messages=(Message(role="user", content=text),), cache_salt="s" * 43)


@pytest.fixture
def servers() -> Iterator[list[Upstream]]:
    allowed = KNOWN_FIELDS | {"cache_salt"}
    with serving(Upstream(allowed)) as one, serving(Upstream(allowed)) as other:
        yield [one, other]


@pytest.fixture
async def replicas(servers: list[Upstream]) -> AsyncIterator[VLLMTarget]:
    target = VLLMTarget(model="m", base_urls=[s.base_url for s in servers], rest_s=0.3)
    yield target
    await target.close()


async def streamed(target: VLLMTarget, call: Call) -> str:
    return "".join([chunk.text async for chunk in target.stream(call)])


async def test_a_prefix_stays_with_its_server_and_is_salted(replicas, servers):
    for _ in range(3):
        for text in ("a" * 400, "b" * 400):
            await replicas.complete(call(text))
    seen = [{body["messages"][0]["content"][0] for body in s.bodies} for s in servers]
    assert sorted(map(sorted, seen)) == [["a"], ["b"]]
    assert all(body["cache_salt"] == "s" * 43 for s in servers for body in s.bodies)


@pytest.mark.parametrize("status", [503, 429])
async def test_a_busy_server_is_replaced_by_another(replicas, servers, status):
    await replicas.complete(call())
    home = next(s for s in servers if s.bodies)
    home.answer(Reply(status=status))
    assert await streamed(replicas, call()) == "The fee is 80."
    assert (await replicas.complete(call())).text == "The fee is 80."


async def test_a_server_that_is_gone_is_left_alone_for_a_while(servers):
    urls = ["http://127.0.0.1:9/v1", servers[0].base_url]
    target = VLLMTarget(model="m", base_urls=urls, rest_s=60, watch_s=60)
    for number in range(6):
        assert (await target.complete(call(f"{number}" * 400))).text == "The fee is 80."
    assert len(servers[0].bodies) == 6
    assert target.replicas[0].down_until_s > 0
    await target.close()


async def test_a_server_that_hangs_is_left_alone_too(servers):
    target = VLLMTarget(
        model="m", base_urls=[s.base_url for s in servers], timeout_s=0.3, rest_s=60, watch_s=60
    )
    await target.complete(call())
    home = next(s for s in servers if s.bodies)
    home.answer(Reply(delay_s=1.0))
    with pytest.raises(TargetError, match="in time"):
        await target.complete(call())  # may have been computed: not taken elsewhere
    assert (await target.complete(call())).text == "The fee is 80."
    assert len(home.bodies) == 2
    await target.close()


async def test_where_all_are_gone_the_error_is_told():
    lost = []
    target = VLLMTarget(model="m", base_urls=["http://127.0.0.1:9/v1", "http://127.0.0.1:11/v1"])
    target.watch(lambda: lost.append(1))
    with pytest.raises(TargetError, match="cannot be reached"):
        await target.complete(call())
    with pytest.raises(TargetError, match="cannot be reached"):
        await streamed(target, call())
    assert lost
    await target.close()


async def test_an_error_of_the_request_is_told_and_not_taken_elsewhere(replicas, servers):
    for server in servers:
        server.answer(Reply(status=400, error={"message": "too long", "type": "BadRequestError"}))
    with pytest.raises(TargetError, match="too long") as failed:
        await replicas.complete(call())
    assert (failed.value.status, failed.value.kind) == (400, "BadRequestError")
    assert sum(len(s.bodies) for s in servers) == 1


async def test_a_stream_that_has_begun_is_never_begun_anew(replicas, servers):
    for server in servers:
        server.answer(Reply(pieces=["a", "b", "c"], break_after=1, piece_delay_s=0.05))
    texts: list[str] = []

    async def read() -> None:
        async for chunk in replicas.stream(call()):
            texts.append(chunk.text)  # noqa: PERF401 -- what came before the fault is kept

    with pytest.raises(TargetError):
        await read()
    assert texts == ["a"]
    assert sum(len(s.bodies) for s in servers) == 1


async def test_many_at_once_over_one_prefix_spill_over(replicas, servers):
    for server in servers:
        server.answer(Reply(delay_s=0.3))
    await asyncio.gather(*(replicas.complete(call()) for _ in range(12)))
    counts = [len(s.bodies) for s in servers]
    assert sum(counts) == 12
    assert min(counts) >= 3
    assert replicas.router.busy == [0, 0]


async def test_leaving_a_stream_frees_the_server(replicas, servers):
    for server in servers:
        server.answer(Reply(pieces=["x"] * 500, piece_delay_s=0.02))
    stream = replicas.stream(call())
    await anext(stream)
    assert sum(replicas.router.busy) == 1
    await stream.aclose()
    assert replicas.router.busy == [0, 0]
    async with asyncio.timeout(10):
        while not any(s.closed for s in servers):
            await asyncio.sleep(0.01)


def test_addresses_and_endpoints_are_checked():
    with pytest.raises(ConfigError, match="needs an address"):
        VLLMTarget(model="m", base_urls=[])
    with pytest.raises(ConfigError, match="1 endpoints of KV events for 2 servers"):
        VLLMTarget(model="m", base_urls=["http://a/v1", "http://b/v1"], kv_events=["ipc:///x"])
