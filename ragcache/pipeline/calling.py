"""Stages 3 and 4: lay out, call the target, admit, store. Runs once for many equal requests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

from ..events import Called
from ..protocols import Target
from ..types import NO_REUSE, Call, Chunk, Completion, Reuse
from .arranging import Arranging
from .asking import Asking, Outcome, Understanding
from .guarding import Guarding
from .parts import Parts
from .rollout import Rollouts
from .second import SecondOpinion
from .storing import Storing
from .warming import Warming

_NOTHING = Completion(text="", finish_reason=None)


class Calling:
    """Asks the target for an answer and hands it to admission."""

    def __init__(
        self,
        parts: Parts,
        guarding: Guarding,
        arranging: Arranging,
        storing: Storing,
        rollouts: Rollouts,
        second: SecondOpinion,
        *,
        warm_first_s: float,
    ) -> None:
        self._parts = parts
        self._guarding = guarding
        self._arranging = arranging
        self._storing = storing
        self._rollouts = rollouts
        self._second = second
        self._warming = Warming(wait_s=warm_first_s)

    async def lead(
        self, asking: Asking, target: Target, understanding: Understanding, *, streaming: bool
    ) -> AsyncGenerator[Chunk | Outcome, None]:
        """Yield the target's chunks, then the outcome. Errors of the target pass unchanged."""
        snapshot = await self._storing.snapshot(asking)
        arranged = await self._arranging.arrange(asking)
        layout = arranged.layout
        called = _Called(began_s=time.perf_counter())
        async with self._warming.ahead(asking, layout) as warm:
            try:
                # Closed at once when the caller leaves: the upstream stops computing then.
                async with _closing(_pieces(target, arranged.call, streaming)) as pieces:
                    async for chunk in pieces:
                        warm.set()
                        called.take(chunk)
                        if chunk.text or chunk.raw is not None:
                            yield _without_completion(chunk)
            except BaseException as error:
                self._emit(asking, called, NO_REUSE, error=type(error).__name__)
                raise
        reuse = self._arranging.reuse(arranged, called.completion)
        self._emit(asking, called, reuse)
        if self._parts.store is not None:
            self._guarding.missed(asking, understanding.below, called.completion.text)
        self._second.judge_later(asking, target, understanding.grey)
        self._arranging.remember(asking, arranged, called.completion)
        self._rollouts.note(asking)
        verdict, stored, reason = await self._storing.admit(
            asking, understanding, called.completion, layout, snapshot
        )
        yield Outcome(
            completion=called.completion,
            layout=layout,
            reuse=reuse,
            verdict=verdict,
            stored=stored,
            store_reason=reason,
            ttft_s=called.ttft_s,
        )

    async def regenerate(self, asking: Asking, target: Target) -> Completion:
        """Ask anew, for a verification: nothing is stored, no conversation goes on."""
        arranged = await self._arranging.arrange(asking)
        return await target.complete(arranged.call)

    def _emit(self, asking: Asking, called: _Called, reuse: Reuse, *, error: str = "") -> None:
        self._parts.emit(
            Called,
            asking,
            called.began_s,
            model=asking.asked.model,
            target=asking.asked.name,
            usage=called.completion.usage,
            reuse=reuse,
            ttft_s=called.ttft_s,
            finish_reason=called.completion.finish_reason,
            error=error,
        )


@dataclass(slots=True)
class _Called:
    """What one call has given so far."""

    began_s: float
    ttft_s: float | None = None
    completion: Completion = _NOTHING

    def take(self, chunk: Chunk) -> None:
        if self.ttft_s is None:
            self.ttft_s = time.perf_counter() - self.began_s
        self.completion = chunk.completion or self.completion


def _pieces(
    target: Target,
    call: Call,
    streaming: bool,  # noqa: FBT001 -- the one thing that chooses between two calls
) -> AsyncIterator[Chunk]:
    return target.stream(call) if streaming else _whole(target, call)


async def _whole(target: Target, call: Call) -> AsyncGenerator[Chunk, None]:
    completion = await target.complete(call)
    yield Chunk(text=completion.text, completion=completion)


def _closing(pieces: AsyncIterator[Chunk]) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
    if isinstance(pieces, AsyncGenerator):
        return contextlib.aclosing(pieces)
    return contextlib.nullcontext(pieces)  # an iterator that is no generator has nothing to close


def _without_completion(chunk: Chunk) -> Chunk:
    return chunk if chunk.completion is None else replace(chunk, completion=None)
