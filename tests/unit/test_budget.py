"""Bounds hold whatever the work does, and a breaker stops asking what keeps failing."""

from __future__ import annotations

import asyncio
import time

import pytest

from ragcache.budget import Bounded, Breaker, BreakerOpenError


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
