"""Stages 3 and 4: lay out, call the target, admit, store. Runs once for many equal requests."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from datetime import datetime

from ..events import Called, LaidOut
from ..keys import cache_salt
from ..layout import LayoutPolicy, PrefixForest, arrange
from ..layout.plan import Count
from ..protocols import Target
from ..types import NO_REUSE, Call, Chunk, Completion, Layout, Reuse
from .asking import Asking, Outcome, Understanding
from .parts import Parts
from .storing import Storing
from .warming import Warming

_NOTHING = Completion(text="", finish_reason=None)


class Calling:
    """Asks the target for an answer and hands it to admission."""

    def __init__(
        self,
        parts: Parts,
        storing: Storing,
        *,
        policy: LayoutPolicy,
        salt_secret: bytes,
        warm_first_s: float,
        clock: Callable[[], datetime],
        count: Count,
    ) -> None:
        self._warming = Warming(wait_s=warm_first_s)
        self.forest = PrefixForest()
        self._parts = parts
        self._storing = storing
        self._policy = policy
        self._salt_secret = salt_secret
        self._clock = clock
        self._count = count

    async def lead(
        self, asking: Asking, target: Target, understanding: Understanding, *, streaming: bool
    ) -> AsyncGenerator[Chunk | Outcome, None]:
        """Yield the target's chunks, then the outcome. Errors of the target pass unchanged."""
        snapshot = await self._storing.snapshot(asking)
        layout = self._laid_out(asking)
        called = _Called(began_s=time.perf_counter())
        async with self._warming.ahead(asking, layout) as warm:
            try:
                async for chunk in _pieces(target, self._call(asking, layout), streaming):
                    warm.set()
                    called.take(chunk)
                    if chunk.text or chunk.raw is not None:
                        yield replace(chunk, completion=None)
            except BaseException as error:
                self._emit(asking, called, NO_REUSE, error=type(error).__name__)
                raise
        reuse = Reuse(
            predicted_tokens=layout.predicted_tokens,
            served_tokens=called.completion.usage.cached_tokens,
            notes=layout.notes,
        )
        self._emit(asking, called, reuse)
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

    def _laid_out(self, asking: Asking) -> Layout:
        began_s = time.perf_counter()
        group = "/".join(asking.trust_group)
        tree = self.forest.tree(group)
        layout = arrange(asking.request, policy=self._policy, tree=tree, count=self._count)
        difference = tree.difference(layout)
        if difference is not None:
            layout = replace(layout, notes=(*layout.notes, str(difference)))
        self.forest.remember(group, layout.plan, now_s=self._clock().timestamp())
        self._parts.emit(LaidOut, asking, began_s, layout=layout)
        return layout

    def _call(self, asking: Asking, layout: Layout) -> Call:
        salt = cache_salt(self._salt_secret, *asking.trust_group) if self._salt_secret else None
        return Call(
            model=asking.asked.model,
            messages=layout.messages,
            tools=layout.tools,
            params={k: v for k, v in asking.request.params.items() if k != "cache_salt"},
            cache_salt=salt,
            layout=layout,
        )

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


async def _pieces(
    target: Target,
    call: Call,
    streaming: bool,  # noqa: FBT001 -- the one thing that chooses between two calls
) -> AsyncGenerator[Chunk, None]:
    if not streaming:
        completion = await target.complete(call)
        yield Chunk(text=completion.text, completion=completion)
        return
    async for chunk in target.stream(call):
        yield chunk
