"""The error rate of semantic hits, measured on live traffic and held under its bound.

What the guard decides is pure (`lookup.guard`); here it is fed: every lookup is observed, a
share of the hits is verified by asking the target again in the background, and misses that a
lower threshold would have served are compared with the fresh answer for nothing.

Processes of one deployment count together. Each keeps what it has seen since it last handed in,
adds that to what the store holds, and goes on from the sum, in which the others' counts are.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..lookup import (
    GuardPolicy,
    GuardState,
    Happening,
    Judgement,
    Observed,
    Standing,
    answers_agree,
    counted,
    standing,
    state_from_json,
    state_json,
)
from ..protocols import Store
from ..types import UNKNOWN_USAGE, Completion, Hit, JsonObject, Scope, TenantId, Usage
from .asking import Asking
from .parts import Parts

#: The tenant under which what concerns the whole deployment is kept.
DEPLOYMENT = TenantId("ragcache:deployment")
_KEPT = timedelta(days=365)
#: How often the counts of others, and verdicts from outside, are taken over, at least.
_HEAR_EVERY_S = 60.0
#: Lookups without a verdict that are handed in together.
_TOGETHER = 100
#: Kept to be handed in while the store is away; then the oldest are given up.
_UNSAVED_MAX = 10_000
#: How often it is tried again where another process was faster.
_TRIES = 8
#: Asks the target anew.
Regenerate = Callable[[], Awaitable[Completion]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A verdict from outside (`ragcache feedback`), as it waits for running processes."""

    path: tuple[str, ...]
    similarity: float
    agreed: bool

    def as_json(self) -> JsonObject:
        """Return it as plain JSON values."""
        return {"path": list(self.path), "similarity": self.similarity, "agreed": self.agreed}


def told_key(deployment: str) -> str:
    """Return the key of the state in which verdicts from outside wait."""
    return f"{deployment}:told"


#: Hits that a user may still report, and verifications under way, at most.
_RECENT, _AT_ONCE = 1000, 2


class Guarding:
    """Feeds the guard and hands out what it decided.

    Args:
        parts: The store keeps what was learned.
        policy: What the guard holds.
        clock: The one clock.
        deployment: Whose traffic it is: processes of one deployment share what they learned.
        draw: Uniform numbers in [0, 1): which hits are verified.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        policy: GuardPolicy,
        clock: Callable[[], datetime],
        deployment: str,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._parts = parts
        self._policy = policy
        self._clock = clock
        self._deployment = deployment
        self._draw = draw
        self._state = GuardState()
        self._unsaved: deque[Happening] = deque(maxlen=_UNSAVED_MAX)
        self._handing_in = asyncio.Lock()
        self._off_told = False
        self._verifying = 0
        self._recent: OrderedDict[str, tuple[Asking, Hit]] = OrderedDict()
        self._hear_at_s = 0.0

    # --- what holds now ------------------------------------------------------------------------

    def standing(self, asking: Asking, policy: GuardPolicy | None = None) -> Standing:
        """Return threshold, certificate and share to verify for this request's partition."""
        return standing(self._state, path_of(asking.scope), policy or self._policy)

    # --- what was seen -------------------------------------------------------------------------

    def missed(self, asking: Asking, below: Hit | None, fresh: str) -> None:
        """Observe a lookup that went forward; `below` passed every gate but the threshold."""
        seen = Observed()
        if below is not None:
            agreed = answers_agree(_text(below), fresh)
            seen = Observed(similarity=below.similarity, agreed=agreed)
        self._observe(asking, seen)

    def served(self, asking: Asking, hit: Hit, regenerate: Regenerate | None) -> None:
        """Observe a semantic hit; have a share of them verified in the background."""
        share = self.standing(asking).verify_share
        self._observe(asking, Observed(similarity=hit.similarity, served=True))
        self._recent[asking.request_id] = (asking, hit)
        while len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        if regenerate is None or self._verifying >= _AT_ONCE:
            return
        if self._draw() < share:
            self._parts.later(self._verify(asking, hit, regenerate))

    def _observe(self, asking: Asking, seen: Observed) -> None:
        self._happened(asking, seen)
        if len(self._unsaved) >= _TOGETHER or time.monotonic() >= self._hear_at_s:
            self._hand_in_later()

    def _happened(self, asking: Asking, seen: Observed | Judgement) -> None:
        happening = Happening(path=path_of(asking.scope), seen=seen)
        self._unsaved.append(happening)
        self._state = counted(self._state, (happening,), self._policy)

    async def _verify(self, asking: Asking, hit: Hit, regenerate: Regenerate) -> None:
        self._verifying += 1
        try:
            fresh = await regenerate()
        except Exception as error:  # noqa: BLE001 -- a failed verification is no verdict; the event tells
            self._parts.degraded(
                asking, "guard", "verification", f"{type(error).__name__}: {error}"
            )
            return
        finally:
            self._verifying -= 1
        if fresh.finish_reason == "stop":
            agreed = answers_agree(_text(hit), fresh.text)
            self.judged(asking, hit, agreed=agreed, usage=fresh.usage)

    def reported(self, request_id: str) -> bool:
        """Note that a user called a hit wrong; return whether the hit is still known here."""
        known = self._recent.pop(request_id, None)
        if known is None:
            return False
        self.judged(*known, agreed=False, by="feedback")
        return True

    def judged(
        self,
        asking: Asking,
        hit: Hit,
        *,
        agreed: bool,
        usage: Usage = UNKNOWN_USAGE,
        by: str = "verification",
    ) -> None:
        """Note a verdict on a hit; one that was wrong is taken out of service."""
        self._happened(asking, Judgement(similarity=hit.similarity, agreed=agreed))
        self._parts.judged(asking, hit.entry.id, hit.similarity, agreed=agreed, usage=usage, by=by)
        if not agreed and self._parts.store is not None:
            self._parts.queued(
                self._parts.store.quarantine(asking.scope, hit.entry.id, reason=f"bad_hit:{by}")
            )
        self._tell(asking)
        self._hand_in_later()

    def _tell(self, asking: Asking) -> None:
        """Tell the operator, once, that no threshold keeps the bound."""
        now = self.standing(asking)
        if now.off and not self._off_told:
            detail = (
                f"semantic hits are off: wrong {now.wrong} of {now.judged} judged; run "
                "`ragcache calibrate --from-traffic` or raise bad_hit_guard"
            )
            self._parts.degraded(asking, "guard", "off", detail)
        self._off_told = now.off

    # --- what is kept --------------------------------------------------------------------------

    def _hand_in_later(self) -> None:
        if self._parts.store is not None:
            self._parts.queued(self.hand_in(), name="guard")

    async def hand_in(self) -> None:
        """Add what was seen here to what all have seen, and go on from there."""
        store = self._parts.store
        if store is None:
            return
        async with self._handing_in:
            self._hear_at_s = time.monotonic() + _HEAR_EVERY_S
            for _ in range(_TRIES):
                if await self._handed_in(store):
                    return

    async def _handed_in(self, store: Store) -> bool:
        kept = await self._recalled(store)
        told = await self._told(store, kept.heard)
        mine = tuple(self._unsaved) if self._policy.shared else ()
        together = counted(kept.state, (*told.happenings, *mine), self._policy)
        if (
            self._policy.shared
            and (mine or told.happenings)
            and not await self._exchanged(store, together, heard=told.last, seen=kept.version)
        ):
            return False
        for _ in mine:
            self._unsaved.popleft()
        self._state = counted(together, self._unsaved, self._policy)
        return True

    async def _recalled(self, store: Store) -> _Kept:
        kept = await store.recall(DEPLOYMENT, "guard", self._deployment, now=self._clock())
        return _Kept() if kept is None else _kept(kept)

    async def _exchanged(
        self, store: Store, together: GuardState, *, heard: int, seen: int
    ) -> bool:
        now = self._clock()
        return await store.exchange(
            DEPLOYMENT,
            "guard",
            self._deployment,
            {**state_json(together), "heard": heard, "version": seen + 1},
            seen=seen,
            now=now,
            expire_at=now + _KEPT,
        )

    async def _told(self, store: Store, heard: int) -> _Heard:
        """Return the verdicts from outside that nobody has counted yet."""
        key = told_key(self._deployment)
        kept = await store.recall(DEPLOYMENT, "guard", key, now=self._clock())
        items = [(int(at), told) for at, told in (kept or {}).get("items", ()) if at > heard]
        return _Heard(
            happenings=tuple(each for _, told in items if (each := _happening(told)) is not None),
            last=max((at for at, _ in items), default=heard),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What all processes have counted: up to which verdict from outside, as which version."""

    state: GuardState = field(default_factory=GuardState)
    heard: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """Verdicts from outside, and the number of the last one."""

    happenings: tuple[Happening, ...]
    last: int


def _kept(value: JsonObject) -> _Kept:
    """Read the state; one of another version of ragcache is learned anew."""
    version = int(value.get("version", 0))
    try:
        return _Kept(
            state=state_from_json(value), heard=int(value.get("heard", 0)), version=version
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return _Kept(version=version)


def _happening(told: JsonObject) -> Happening | None:
    """Read a verdict from outside; None for one of another version of ragcache."""
    try:
        seen = Judgement(similarity=float(told["similarity"]), agreed=bool(told["agreed"]))
        return Happening(path=tuple(map(str, told["path"])), seen=seen)
    except (KeyError, TypeError, ValueError):
        return None


def path_of(scope: Scope) -> tuple[str, str]:
    """Evidence is kept for the partition, its namespace and the whole deployment."""
    return path_to(scope.namespace, scope.partition)


def path_to(namespace: str, partition: str) -> tuple[str, str]:
    """Return the path of a partition, by its names."""
    return f"namespace:{namespace}", f"partition:{partition[:16]}"


def _text(hit: Hit) -> str:
    return str(hit.entry.answer.get("text", ""))
