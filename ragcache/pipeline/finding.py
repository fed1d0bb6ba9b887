"""Stages 1 and 2: exact lookup, then semantic lookup, each a bypass where a part fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from .. import lookup
from ..admission import KeyRing
from ..errors import NotCachedError
from ..events import LookedUp
from ..keys import question_of
from ..lookup.guard import ruling
from ..protocols import BAD_SIGNATURE, Store
from ..types import Candidate, Entry, EntryId, Hit, Miss, Request
from .asking import Asking, Policies, Understanding
from .guarding import Guarding, Regenerate
from .parts import Parts
from .second import SecondOpinion
from .spread import Spread


class Finding:
    """Looks for an answer that may be served."""

    def __init__(
        self,
        parts: Parts,
        guarding: Guarding,
        *,
        policies: Policies,
        keyring: KeyRing | None,
        clock: Callable[[], datetime],
        second: SecondOpinion,
    ) -> None:
        self._parts = parts
        self._guarding = guarding
        self._second = second
        self._policies = policies
        self._keyring = keyring
        self._clock = clock
        self._spread = Spread()

    async def find(self, asking: Asking, understanding: Understanding) -> Hit | Miss:
        """Return a hit, or why there is none.

        Raises:
            NotCachedError: Only a cached answer was wanted.
        """
        began_s = time.perf_counter()
        embed_s = 0.0
        found = await self._by_key(asking, understanding)
        if isinstance(found, Miss) and found.fwd == "miss":
            embed_began_s = time.perf_counter()
            found = await self._by_meaning(asking, understanding, found)
            embed_s = time.perf_counter() - embed_began_s
        self._parts.emit(
            LookedUp,
            asking,
            began_s,
            outcome=found,
            embed_seconds=embed_s,
            question=question_of(asking.request),
        )
        if isinstance(found, Miss) and asking.request.only_if_cached:
            raise NotCachedError(f"no cached answer may be served: {found.reason}")
        return found

    async def foresee(self, asking: Asking) -> Hit | Miss:
        """Look whether something could be served before anything was retrieved; count nothing."""
        understanding = Understanding()
        found = await self._by_key(asking, understanding)
        if isinstance(found, Miss) and found.fwd == "miss":
            return await self._by_meaning(asking, understanding, found)
        return found

    async def again(self, asking: Asking) -> Hit | Miss:
        """Look by key only: has somebody stored the answer meanwhile?"""
        return await self._by_key(asking, Understanding())

    def used(self, asking: Asking, hit: Hit, regenerate: Regenerate | None = None) -> None:
        """Note that a hit is served: it was used now, and a semantic one is held to the guard.

        Args:
            asking: Who is served.
            hit: What they are served.
            regenerate: Asks the target anew, for a verification; None where nobody here can.
        """
        if self._parts.store is not None:
            noted = self._parts.store.touch(asking.scope, hit.entry.id, now=self._clock())
            self._parts.queued(noted, name=f"touch:{hit.entry.id}")
        if hit.kind == "semantic":
            self._guarding.served(asking, hit, regenerate)

    def reported(self, request_id: str) -> bool:
        """Note that a user called a hit wrong; return whether the hit is still known here."""
        return self._guarding.reported(request_id)

    async def _by_key(self, asking: Asking, understanding: Understanding) -> Hit | Miss:
        store = self._parts.store
        if store is None:
            return Miss(reason="no_store", fwd="request")
        if reason := _asked_not_to(asking.request):
            return Miss(reason=reason, fwd="request")
        if not any(c.isalnum() for c in question_of(asking.request)):
            return Miss(reason="blank_question", fwd="bypass")
        now = self._clock()
        candidates = await self._parts.stored(
            asking, store.find_exact(asking.scope, asking.keys, now=now)
        )
        if isinstance(candidates, Miss):
            return candidates
        genuine = self._genuine(asking, candidates)
        if not genuine:
            return Miss(reason="no_candidate")
        hit = lookup.exact_hit(genuine, request=asking.request, now=now)
        if hit is not None:
            return hit
        understanding.reading = lookup.read(question_of(asking.request))
        policy = self._lowest(asking, understanding.reading)
        return self._decide(asking, understanding.reading, genuine, now, policy)

    async def _by_meaning(
        self, asking: Asking, understanding: Understanding, by_key: Miss
    ) -> Hit | Miss:
        store, embedder = self._parts.store, self._parts.embedder
        if store is None or embedder is None or not store.has_vectors:
            return by_key
        if asking.request.exact_only:
            return by_key
        if leans_on_history(asking.request):
            return _told(Miss(reason="conversation"), by_key)
        embedding = await self._parts.embedded(asking, question_of(asking.request))
        if isinstance(embedding, Miss):
            return embedding
        understanding.embedding = embedding
        understanding.reading = lookup.read(question_of(asking.request), embedding)
        return await self._among_similar(asking, understanding, store, by_key)

    async def _among_similar(
        self, asking: Asking, understanding: Understanding, store: Store, by_key: Miss
    ) -> Hit | Miss:
        embedding, reading = understanding.embedding, understanding.reading
        if embedding is None or reading is None:
            return by_key
        now, policy = self._clock(), self._lowest(asking, reading)
        search = store.find_similar(
            asking.scope,
            embedding.vector,
            embedder=self._parts.embedder.id if self._parts.embedder else "",
            now=now,
            limit=policy.limit,
        )
        candidates = await self._parts.stored(asking, search)
        if isinstance(candidates, Miss):
            return candidates
        candidates = self._genuine(asking, candidates, floor=policy.threshold)
        found = self._decide(asking, reading, candidates, now, policy)
        if isinstance(found, Miss) and self._second.is_wanted:
            found = await self._decided_anew(asking, understanding, candidates, found, now, policy)
        ruled = ruling(found, self._standing(asking, reading))
        if isinstance(ruled, Hit):
            return ruled
        understanding.below = found if isinstance(found, Hit) else None
        if isinstance(found, Miss):
            near = self._policy(asking, reading).threshold
            self._watch_for_hubs(asking, candidates, near=near)
        return _told(ruled, by_key)

    async def _decided_anew(
        self,
        asking: Asking,
        understanding: Understanding,
        candidates: Sequence[Candidate],
        found: Miss,
        now: datetime,
        policy: lookup.LookupPolicy,
    ) -> Hit | Miss:
        """Hear a second opinion on what the gates leave open; nearer ones than the guard wants."""
        reading, embedding = understanding.reading, understanding.embedding
        if reading is None or embedding is None:
            return found
        standing = self._standing(asking, reading)
        if standing.off:
            return found
        grey = lookup.grey(
            candidates,
            asked=reading,
            request=asking.request,
            now=now,
            policy=policy,
            threshold=standing.threshold,
            names_told=self._second.names_told,
        )
        if not grey:
            return found
        opinions = await self._second.of(asking, embedding, grey)
        understanding.grey = tuple(each for each in grey if each.entry.id not in opinions)
        if not opinions:
            return found
        return self._decide(asking, reading, candidates, now, policy, opinions)

    def _watch_for_hubs(
        self, asking: Asking, candidates: Sequence[Candidate], *, near: float
    ) -> None:
        """Note what was near enough and did not fit; tell of an entry that never does."""
        if not candidates or candidates[0].similarity < near:
            return
        nearest = candidates[0]
        if self._spread.in_vain(nearest.entry.id, question_of(asking.request)):
            detail = (
                f"entry {nearest.entry.id} is nearest to many questions that it does not answer"
            )
            self._parts.degraded(asking, "lookup", "hub", detail)

    def _decide(
        self,
        asking: Asking,
        asked: lookup.Reading,
        candidates: Sequence[Candidate],
        now: datetime,
        policy: lookup.LookupPolicy,
        opinions: Mapping[EntryId, bool] = lookup.NO_OPINIONS,
    ) -> Hit | Miss:
        return lookup.decide(
            candidates,
            asked=asked,
            request=asking.request,
            now=now,
            policy=policy,
            opinions=opinions,
            names_told=self._second.names_told,
        )

    def _policy(self, asking: Asking, asked: lookup.Reading) -> lookup.LookupPolicy:
        return self._policies.lookup_of(asking.scope.namespace, asked.language)

    def _standing(self, asking: Asking, asked: lookup.Reading) -> lookup.Standing:
        policy = self._policies.guarding_of(self._policy(asking, asked))
        return self._guarding.standing(asking, policy)

    def _lowest(self, asking: Asking, asked: lookup.Reading) -> lookup.LookupPolicy:
        """Return the policy at the lowest threshold that the guard may choose."""
        policy = self._policy(asking, asked)
        floor = self._policies.guarding_of(policy).floor
        return replace(policy, threshold=floor, uncertified_threshold=floor)

    def _genuine(
        self, asking: Asking, candidates: Sequence[Candidate], *, floor: float = 0.0
    ) -> Sequence[Candidate]:
        """Leave out what was altered. Below the floor nothing is served, and nothing verified."""
        return [
            each
            for each in candidates
            if (each.similarity < floor and not each.exact) or self._is_genuine(asking, each.entry)
        ]

    def _is_genuine(self, asking: Asking, entry: Entry) -> bool:
        """Verify the signature; an altered row is taken out of service."""
        if self._keyring is not None and self._keyring.verify(entry):
            return True
        self._parts.degraded(asking, "store", BAD_SIGNATURE, entry.id)
        if self._parts.store is not None:
            self._parts.queued(
                self._parts.store.quarantine(asking.scope, entry.id, reason=BAD_SIGNATURE)
            )
        return False


def leans_on_history(request: Request) -> bool:
    """Whether the question means nothing without the turns before it."""
    return not request.standalone and lookup.needs_context(request.question, request.history)


def _asked_not_to(request: Request) -> str:
    if request.no_cache:
        return "no_cache"
    return "refresh" if request.refresh else ""


def _told(found: Miss, by_key: Miss) -> Miss:
    """Of the two lookups, the one that has more to tell."""
    return by_key if by_key.reason != "no_candidate" and found.reason == "no_candidate" else found
