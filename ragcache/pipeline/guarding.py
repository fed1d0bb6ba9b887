"""The error rate of semantic hits, measured on live traffic and held under its bound.

What the guard decides is pure (`lookup.guard`); here it is fed: every lookup is observed, a
share of the hits is verified by asking the target again in the background, and misses that a
lower threshold would have served are compared with the fresh answer for nothing.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..events import Judged
from ..lookup import LookupPolicy, answers_agree
from ..lookup.guard import (
    GuardPolicy,
    GuardState,
    Observed,
    Standing,
    judge,
    observe,
    standing,
    state_from_json,
    state_json,
)
from ..types import UNKNOWN_USAGE, Completion, Hit, JsonObject, Scope, TenantId, Usage
from .asking import Asking
from .parts import Parts

#: The tenant under which what concerns the whole deployment is kept.
DEPLOYMENT = TenantId("ragcache:deployment")
_KEPT = timedelta(days=365)
#: How often the verdicts that came from outside are looked for, at most.
_HEAR_EVERY_S = 60.0
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
        self._unsaved = 0
        self._off_told = False
        self._verifying = 0
        self._recent: OrderedDict[str, tuple[Asking, Hit]] = OrderedDict()
        self._heard = 0
        self._hear_at_s = 0.0

    # --- what holds now ------------------------------------------------------------------------

    def standing(self, asking: Asking) -> Standing:
        """Return threshold, certificate and share to verify for this request's partition."""
        return standing(self._state, path_of(asking.scope), self._policy)

    def lowest(self, policy: LookupPolicy) -> LookupPolicy:
        """Return the lookup policy at the lowest threshold the guard may choose."""
        floor = self._policy.floor
        return replace(policy, threshold=floor, uncertified_threshold=floor)

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
        self._state = observe(self._state, path_of(asking.scope), seen, self._policy)
        self._note()
        if time.monotonic() >= self._hear_at_s:
            self._hear_at_s = time.monotonic() + _HEAR_EVERY_S
            self._parts.queued(self.hear(), name="guard:told")

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
        self._state = judge(
            self._state,
            path_of(asking.scope),
            similarity=hit.similarity,
            agreed=agreed,
            policy=self._policy,
        )
        self._parts.emit(
            Judged,
            asking,
            None,
            entry=hit.entry.id,
            similarity=hit.similarity,
            agreed=agreed,
            usage=usage,
            by=by,
            model=asking.asked.model,
        )
        if not agreed and self._parts.store is not None:
            self._parts.queued(
                self._parts.store.quarantine(asking.scope, hit.entry.id, reason=f"bad_hit:{by}")
            )
        self._tell(asking)
        self._note(at_once=True)

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

    async def recall(self) -> None:
        """Take up what an earlier process learned, and what was told meanwhile."""
        store = self._parts.store
        if store is None:
            return
        kept = await store.recall(DEPLOYMENT, "guard", self._deployment, now=self._clock())
        if kept is not None:
            with contextlib.suppress(
                KeyError, TypeError, ValueError
            ):  # another version's: learn anew
                self._state = state_from_json(kept)
                self._heard = int(kept.get("heard", 0))
        await self.hear()

    async def hear(self) -> None:
        """Count the verdicts that came from outside since the last look."""
        store = self._parts.store
        if store is None:
            return
        key = told_key(self._deployment)
        kept = await store.recall(DEPLOYMENT, "guard", key, now=self._clock())
        for number, told in (kept or {}).get("items", ()):
            if number > self._heard:
                self._heard = number
                self._count(told)

    def _count(self, told: JsonObject) -> None:
        with contextlib.suppress(KeyError, TypeError, ValueError):  # another version's
            self._state = judge(
                self._state,
                tuple(map(str, told["path"])),
                similarity=float(told["similarity"]),
                agreed=bool(told["agreed"]),
                policy=self._policy,
            )
            self._note(at_once=True)

    def _note(self, *, at_once: bool = False) -> None:
        self._unsaved += 1
        if (at_once or self._unsaved >= 100) and self._parts.store is not None:
            self._unsaved = 0
            self._parts.queued(self._save(), name="guard")

    async def _save(self) -> None:
        store, now = self._parts.store, self._clock()
        if store is not None:
            await store.remember(
                DEPLOYMENT,
                "guard",
                self._deployment,
                {**state_json(self._state), "heard": self._heard},
                now=now,
                expire_at=now + _KEPT,
            )


def path_of(scope: Scope) -> tuple[str, str]:
    """Evidence is kept for the partition, its namespace and the whole deployment."""
    return path_to(scope.namespace, scope.partition)


def path_to(namespace: str, partition: str) -> tuple[str, str]:
    """Return the path of a partition, by its names."""
    return f"namespace:{namespace}", f"partition:{partition[:16]}"


def _text(hit: Hit) -> str:
    return str(hit.entry.answer.get("text", ""))
