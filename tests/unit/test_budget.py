"""Bounds hold whatever the work does, and a breaker stops asking what keeps failing."""

from __future__ import annotations

import asyncio
import time

import pytest

from ragcache.budget import Backlog, Bounded, Breaker, BreakerOpenError


async def stubborn(seconds: float) -> str:
    """Work that does not end when it is cancelled, as a driver waiting for a dead peer."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            await asyncio.sleep(until - time.monotonic())
        except asyncio.CancelledError:
            continue
    return "late"


async def failing() -> None:
    raise OSError("down")


async def test_the_bound_holds_although_the_work_swallows_its_cancellation():
    bounded, breaker = Bounded(), Breaker()
    began = time.perf_counter()
    with pytest.raises(TimeoutError):
        await bounded.run(stubborn(0.6), seconds=0.05, breaker=breaker)
    assert time.perf_counter() - began < 0.5  # the control: awaiting the cancelled work takes 0.6
    await bounded.close()
    assert time.perf_counter() - began >= 0.6


async def test_the_breaker_opens_probes_and_closes():
    now = [0.0]
    bounded, breaker = Bounded(), Breaker(failures=2, pause_s=5.0, clock=lambda: now[0])
    for _ in range(2):
        with pytest.raises(OSError, match="down"):
            await bounded.run(failing(), seconds=1, breaker=breaker)
    with pytest.raises(BreakerOpenError):
        await bounded.run(failing(), seconds=1, breaker=breaker)
    now[0] = 6.0
    with pytest.raises(OSError, match="down"):
        await bounded.run(failing(), seconds=1, breaker=breaker)
    with pytest.raises(BreakerOpenError):
        await bounded.run(failing(), seconds=1, breaker=breaker)
    now[0] = 12.0
    assert await bounded.run(asyncio.sleep(0, "up"), seconds=1, breaker=breaker) == "up"
    assert breaker.failed == 0


async def test_only_one_probe_is_let_through():
    now = [0.0]
    breaker = Breaker(failures=1, pause_s=1.0, clock=lambda: now[0])
    breaker.fell()
    now[0] = 2.0
    breaker.enter()
    with pytest.raises(BreakerOpenError):
        breaker.enter()
    breaker.left()
    breaker.enter()


async def test_a_backlog_does_so_much_at_once_and_refuses_what_is_too_much():
    backlog, gate, running, most = Backlog(at_once=2, waiting=3), asyncio.Event(), [0], [0]

    async def work() -> str:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await gate.wait()
        running[0] -= 1
        return "done"

    tasks = [backlog.add(work()) for _ in range(8)]
    assert [task is None for task in tasks] == [False] * 5 + [True] * 3
    assert backlog.refused == 3
    await asyncio.sleep(0.01)
    assert most[0] == 2
    gate.set()
    await backlog.flush(seconds=5)
    assert [task.result() for task in tasks if task] == ["done"] * 5
    assert most[0] == 2
    assert len(backlog) == 0


async def test_work_of_a_name_that_waits_already_is_done_once():
    backlog, gate, done = Backlog(at_once=1), asyncio.Event(), []

    async def work(name: str) -> None:
        await gate.wait()
        done.append(name)

    assert backlog.add(work("first"))
    await asyncio.sleep(0)
    assert backlog.add(work("a"), name="a")
    assert backlog.add(work("a"), name="a") is None
    assert backlog.add(work("b"), name="b")
    gate.set()
    await backlog.flush(seconds=5)
    assert backlog.add(work("a"), name="a")
    await backlog.flush(seconds=5)
    assert done == ["first", "a", "b", "a"]


async def test_what_is_not_done_in_time_is_cancelled_and_nothing_is_left_behind():
    backlog = Backlog(at_once=1)
    tasks = [backlog.add(asyncio.sleep(60)) for _ in range(3)]
    await backlog.flush(seconds=0.01)
    assert all(task.cancelled() for task in tasks)
    assert len(backlog) == 0
