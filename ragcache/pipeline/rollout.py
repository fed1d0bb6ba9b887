"""A new version: its hottest prefixes are sent ahead, and until they are, nothing is cached.

What is hot is known to the process that answers; it keeps that in the store from time to time, so
that another one, such as `ragcache warm`, knows it too.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ..errors import ConfigError, TargetError
from ..events import Called
from ..keys import fingerprint
from ..layout import HotPrefix, Rollout
from ..layout.warm import fitting, from_json, to_json
from ..protocols import Target
from ..types import Completion, Miss, Request, Reuse
from .arranging import Arranging, group_of
from .asking import Asking, ask
from .parts import Parts

#: A warm-up is not worth going on with after so many failures in a row.
_MOST_FAILURES = 3
#: What is hot is kept in the store after so many requests of a trust group, and their multiples.
_KEPT_EVERY = 50
_KEPT_PREFIXES = 100
_KEPT_TOKENS = 500_000
_KEPT_FOR = timedelta(days=7)
#: Fields that a warm-up sets itself.
_LENGTHS = ("max_tokens", "max_completion_tokens", "n", "stop", "stream", "stream_options")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStep:
    """How far a warm-up is, after one more prefix.

    Args:
        done: Prefixes sent so far, whether that succeeded or not.
        wanted: Of how many.
        tokens: Of this prefix, as estimated here.
        cached_tokens: Of them, what the target held already; None where it does not say.
        error: Why the prefix could not be sent; "" where it was.
    """

    done: int
    wanted: int
    tokens: int
    cached_tokens: int | None = None
    error: str = ""


class Rollouts:
    """Warms new versions up, one at a time for each tenant and version.

    Args:
        parts: The store keeps what is hot.
        arranging: Knows what is hot in this process.
        clock: The one clock.
    """

    def __init__(
        self, parts: Parts, arranging: Arranging, *, clock: Callable[[], datetime]
    ) -> None:
        self._parts = parts
        self._arranging = arranging
        self._clock = clock
        self._cold: dict[tuple[str, str], Rollout] = {}

    def is_cold(self, request: Request) -> bool:
        """Return whether the request's version is a canary that is not warm yet."""
        rollout = self._cold.get((request.tenant, request.version))
        return rollout is not None and not rollout.uses_cache(request.version)

    async def warm(
        self,
        asking: Asking,
        target: Target,
        *,
        limit: int,
        max_tokens: int,
        canary: bool,
        after_model: str | None,
    ) -> AsyncGenerator[WarmStep, None]:
        """Send the hottest prefixes, the hottest first; see `Pipeline.warm`."""
        prefixes = await self.hottest(
            asking, limit=limit, max_tokens=max_tokens, after_model=after_model
        )
        failed = 0
        with self._canary(asking.request, len(prefixes), on=canary) as sent:
            for done, prefix in enumerate(prefixes, start=1):
                step = await self._sent(asking, target, prefix, done, len(prefixes))
                failed = failed + 1 if step.error else 0
                sent()
                yield step
                if failed == _MOST_FAILURES:
                    raise TargetError(f"the warm-up ends after {failed} failures: {step.error}")

    @contextmanager
    def _canary(self, request: Request, wanted: int, *, on: bool) -> Iterator[Callable[[], None]]:
        """Hold the version cold until all was sent, or the warm-up ended some other way."""
        place = (request.tenant, request.version)
        if on and not request.version:
            raise ConfigError("a canary is known by its version: set request.version")
        rollout = Rollout(version=request.version, wanted=wanted)
        if on:
            self._cold[place] = rollout

        def sent() -> None:
            nonlocal rollout
            rollout = rollout.after_sending()
            if on:
                self._cold[place] = rollout

        try:
            yield sent
        finally:
            if on:
                self._cold.pop(place, None)

    async def hottest(
        self, asking: Asking, *, limit: int, max_tokens: int, after_model: str | None
    ) -> tuple[HotPrefix, ...]:
        """Return the hottest prefixes of this process, or where it has none, of the store."""
        group = group_of(asking, model=after_model)
        forest, store = self._arranging.forest, self._parts.store
        tree = forest.find(group)
        if tree is not None:
            here = forest.hot.hottest(group, tree.tree, limit=limit, max_tokens=max_tokens)
            if here:
                return here
        if store is None:
            return ()
        key = _kept_under(asking, after_model)
        recalled = store.recall(asking.scope.tenant, "hot", key, now=self._clock())
        kept = await self._parts.stored(asking, recalled)
        if kept is None or isinstance(kept, Miss):
            return ()
        return fitting(from_json(kept), limit=limit, max_tokens=max_tokens)

    async def _sent(
        self, asking: Asking, target: Target, prefix: HotPrefix, done: int, wanted: int
    ) -> WarmStep:
        request = prefix.request(asking.request, system=asking.request.system or None)
        request = request.replace(
            question=".", params=_shortest(target.provider, request.params), session=None
        )
        step = WarmStep(done=done, wanted=wanted, tokens=prefix.tokens)
        began_s = time.perf_counter()
        sub = ask(request, asking.asked)
        arranged = await self._arranging.arrange(sub, whole=True)
        try:
            completion = await target.complete(arranged.call)
        except TargetError as error:
            return replace(step, error=str(error))
        self._tell(sub, began_s, completion, self._arranging.reuse(arranged, completion))
        return replace(step, cached_tokens=completion.usage.cached_tokens)

    def _tell(self, asking: Asking, began_s: float, completion: Completion, reuse: Reuse) -> None:
        """A warm-up is paid for: it counts as a call."""
        self._parts.emit(
            Called,
            asking,
            began_s,
            model=asking.asked.model,
            target=asking.asked.name,
            usage=completion.usage,
            reuse=reuse,
            finish_reason=completion.finish_reason,
        )

    def note(self, asking: Asking) -> None:
        """Keep what is hot in the store, now and then."""
        group = group_of(asking)
        tree, store = self._arranging.forest.find(group), self._parts.store
        if tree is None or store is None or tree.requests % _KEPT_EVERY:
            return
        hot = self._arranging.forest.hot.hottest(
            group, tree.tree, limit=_KEPT_PREFIXES, max_tokens=_KEPT_TOKENS
        )
        if not hot:
            return
        now, key = self._clock(), _kept_under(asking)
        kept = store.remember(
            asking.scope.tenant,
            "hot",
            key,
            to_json(hot),
            now=now,
            expire_at=now + _KEPT_FOR,
        )
        self._parts.queued(kept, name=f"hot:{key}")


def _kept_under(asking: Asking, model: str | None = None) -> str:
    """Return the key in the store: whoever asks the model, and where, the prompts are the same."""
    return fingerprint("hot", asking.trust_group, model or asking.asked.model)


def _shortest(provider: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters for an answer as short as the provider allows.

    OpenAI's newer models take `max_completion_tokens` only, and refuse where it is too small to
    think in (API reference, Chat Completions, read 2026-11-29). Its own warm-up, `prewarm`, is a
    field of the Responses API, which is not spoken here.
    """
    kept = {name: value for name, value in params.items() if name not in _LENGTHS}
    if provider == "openai":
        return {**kept, "max_completion_tokens": 16}
    return {**kept, "max_tokens": 1}
