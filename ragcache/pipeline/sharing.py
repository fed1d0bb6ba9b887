"""Who else may be served what one principal caused to be stored, by what is stored around it.

What is decided is pure (`admission.promotion`, `admission.crowding`); here the store and the
embedder are asked for what it takes. All of it happens in the background, and only for entries
that are to be shared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from .. import admission
from ..errors import EmbeddingError
from ..protocols import Embedder, Neighbourhood, Store
from ..types import Embedding, Entry, Vector

_log = logging.getLogger("ragcache")
#: Entries of other writers that are compared with a new one.
_WITNESSES = 8
#: Longest time for the vectors of the sentinels.
_SENTINELS_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A shared entry that must not be stored; `reason` is one word of the catalogue."""

    reason: str


class Sharing:
    """Lets shared entries into service, keeps them waiting, or refuses them.

    Args:
        embedder: Whose vectors; None where there are none.
        policy: What may be stored.
        keyring: What was altered is no witness.
        clock: The one clock.
    """

    def __init__(
        self,
        *,
        embedder: Embedder | None,
        policy: admission.AdmissionPolicy,
        keyring: admission.KeyRing | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._embedder = embedder
        self._policy = policy
        self._keyring = keyring
        self._clock = clock
        self._sentinels: tuple[Vector, ...] | None = None
        self._embedding = asyncio.Lock()

    async def decided(
        self, store: Store, entry: Entry, embedding: Embedding | None
    ) -> Entry | Refused:
        """Return the entry in the state in which it may be stored."""
        if not is_shared(entry):
            return entry
        if embedding is not None and await self._is_hub(embedding):
            return Refused(reason="hub")
        around = await self._around(store, entry)
        if self._is_crowded(entry, around):
            return Refused(reason="crowded")
        return self._promoted(entry, around) if entry.state == "quarantined" else entry

    async def _around(self, store: Store, entry: Entry) -> Neighbourhood:
        return await store.neighbourhood(
            entry.scope,
            entry.keys,
            entry.vector,
            embedder=entry.embedder,
            now=self._clock(),
            own=self._policy.neighbourhood,
            others=_WITNESSES,
        )

    def _is_crowded(self, entry: Entry, around: Neighbourhood) -> bool:
        """A tenant that names no principals is one writer: nobody could crowd out another."""
        if entry.scope.is_the_tenants:
            return False
        return admission.is_crowded(
            around.own, radius=self._policy.neighbourhood_radius, most=self._policy.neighbourhood
        )

    def _promoted(self, entry: Entry, around: Neighbourhood) -> Entry:
        """Return the entry in service, with who confirmed it, or as it is."""
        genuine = [c.entry for c in around.others if self._is_genuine(c.entry)]
        verdict = admission.decide_promotion(
            entry, genuine, quorum=self._policy.quorum, now=self._clock()
        )
        if isinstance(verdict, admission.Keep):
            return entry
        answer = {**entry.answer, "confirmed_by": list(verdict.agreeing)}
        return replace(entry, state="live", answer=answer)

    def _is_genuine(self, entry: Entry) -> bool:
        return self._keyring is not None and self._keyring.verify(entry)

    # --- hubs ----------------------------------------------------------------------------------

    async def _is_hub(self, embedding: Embedding) -> bool:
        if not self._policy.hubs:
            return False
        return admission.is_hub_vector(embedding.vector, await self._known_sentinels())

    async def _known_sentinels(self) -> Sequence[Vector]:
        """Embed them once, when the first entry is to be shared."""
        async with self._embedding:
            if self._sentinels is None and self._embedder is not None:
                self._sentinels = await _embedded(self._embedder)
        return self._sentinels or ()


async def _embedded(embedder: Embedder) -> tuple[Vector, ...]:
    """Return the vectors of the sentinels; none where the embedder cannot make them in time."""
    try:
        async with asyncio.timeout(_SENTINELS_S):
            found = await embedder.embed(admission.SENTINELS)
    except (EmbeddingError, TimeoutError) as error:
        _log.warning("hubs are not looked for: %s: %s", type(error).__name__, error)
        return ()
    return tuple(each.vector for each in found)


def is_shared(entry: Entry) -> bool:
    """Whether others than the entry's own principal may be served it, some day."""
    return entry.scope.group in ("tenant", "public")
