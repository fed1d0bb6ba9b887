"""One call for many: whoever leaves or fails, the others get what they should."""

from __future__ import annotations

import asyncio

import pytest

from ragcache.flight import Flight


class Source:
    """Counts its calls and yields three items."""

    def __init__(self, *, fail: bool = False) -> None:
        self.calls = 0
        self.cancelled = False
        self.fail = fail

    async def __call__(self):
        self.calls += 1
        try:
            for item in ("a", "b", "c"):
                await asyncio.sleep(0.01)
                yield item
            if self.fail:
                raise ValueError("upstream")
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def collect(flight: Flight, source: Source, key: str = "k") -> list[str]:
    items, _ = flight.join(key, source)
    return [item async for item in items]


async def test_equal_keys_share_one_call_and_get_every_item():
    flight, source = Flight(), Source()
    results = await asyncio.gather(*(collect(flight, source) for _ in range(5)))
    assert source.calls == 1
    assert results == [["a", "b", "c"]] * 5
    assert len(flight) == 0


async def test_a_late_follower_gets_the_items_from_the_first():
    flight, source = Flight(), Source()
    first = asyncio.create_task(collect(flight, source))
    await asyncio.sleep(0.025)
    assert await collect(flight, source) == ["a", "b", "c"]
    assert await first == ["a", "b", "c"]
    assert source.calls == 1


async def test_who_asks_again_after_the_answer_asks_anew():
    flight, source = Flight(), Source()
    for calls in range(1, 6):
        items, joined = flight.join("k", source)
        assert [item async for item in items] == ["a", "b", "c"]
        assert not joined
        assert source.calls == calls


async def test_other_keys_are_other_calls():
    flight, source = Flight(), Source()
    await asyncio.gather(collect(flight, source, "k"), collect(flight, source, "l"))
    assert source.calls == 2


async def test_the_first_caller_may_leave():
    flight, source = Flight(), Source()
    tasks = [asyncio.create_task(collect(flight, source)) for _ in range(5)]
    await asyncio.sleep(0.015)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1:] == [["a", "b", "c"]] * 4
    assert source.calls == 1


async def test_when_all_leave_the_call_is_cancelled():
    flight, source = Flight(), Source()
    tasks = [asyncio.create_task(collect(flight, source)) for _ in range(3)]
    await asyncio.sleep(0.015)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert source.cancelled
    assert len(flight) == 0


async def test_a_failure_reaches_all_and_the_next_one_tries_again():
    flight, source = Flight(), Source(fail=True)
    results = await asyncio.gather(
        *(collect(flight, source) for _ in range(3)), return_exceptions=True
    )
    assert [str(r) for r in results] == ["upstream"] * 3
    source.fail = False
    assert await collect(flight, source) == ["a", "b", "c"]


async def test_closing_cancels_what_runs():
    flight, source = Flight(), Source()
    task = asyncio.create_task(collect(flight, source))
    await asyncio.sleep(0.015)
    await flight.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.cancelled
