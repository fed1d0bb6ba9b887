"""Stage 4: may the answer be stored, and if so store it, without making the caller wait."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from .. import admission, answers, lookup
from ..errors import IsolationError
from ..events import Admitted
from ..keys import question_of
from ..protocols import Snapshot
from ..types import (
    Admit,
    Completion,
    Embedding,
    Entry,
    EntryId,
    EntryState,
    Layout,
    Lineage,
    Miss,
    Reject,
    Request,
)
from .asking import Asking, Understanding
from .finding import leans_on_history
from .parts import Parts
from .rates import WriteRates
from .sharing import Refused, Sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Put:
    """Whether an answer is stored (None: under way), why not, and in which state."""

    stored: bool | None
    reason: str = ""
    state: EntryState | None = None


def _standing(verdict: Admit, put: _Put) -> Admit:
    """Return the verdict with the state in which the answer was stored in the end."""
    if put.state is None:
        return verdict
    promoted = verdict.state == "quarantined" and put.state == "live"
    detail = "promoted" if promoted else "quarantined" if put.state == "quarantined" else ""
    return replace(verdict, state=put.state, detail=detail)


class Storing:
    """Admits answers and puts them away."""

    def __init__(
        self,
        parts: Parts,
        *,
        policy: admission.AdmissionPolicy,
        keyring: admission.KeyRing | None,
        clock: Callable[[], datetime],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._parts = parts
        self._policy = policy
        self._keyring = keyring
        self._clock = clock
        self._draw = draw
        self._rates = WriteRates(policy)
        self._sharing = Sharing(
            embedder=parts.embedder, policy=policy, keyring=keyring, clock=clock
        )

    @property
    def _stores(self) -> bool:
        return self._parts.store is not None and self._keyring is not None

    async def snapshot(self, asking: Asking) -> Snapshot | None:
        """Note what the answer will depend on, before the target is asked."""
        parts = self._parts
        if parts.store is None or self._keyring is None:
            return None
        if asking.request.no_store:
            return None
        found = await parts.stored(
            asking, parts.store.snapshot(asking.scope, asking.request.documents)
        )
        return None if isinstance(found, Miss) else found

    async def admit(
        self,
        asking: Asking,
        understanding: Understanding,
        completion: Completion,
        layout: Layout,
        snapshot: Snapshot | None,
    ) -> tuple[Admit | Reject, bool | None, str]:
        """Return the verdict, whether the answer is stored (None: under way), and why not."""
        began_s = time.perf_counter()
        known = self._stores and snapshot is not None
        lineage = answers.lineage(layout, completion) if known else ()
        verdict = self._decided(asking, completion, layout, lineage, snapshot)
        stored: bool | None = False
        reason = verdict.check if isinstance(verdict, Reject) else ""
        if isinstance(verdict, Admit):
            verdict = self._spread(asking.request, verdict)
            entry = self._entry(asking, completion, layout, lineage, verdict)
            put = await self._put(asking, understanding, entry, snapshot)
            stored, reason = put.stored, put.reason
            verdict = _standing(verdict, put)
        self._parts.emit(Admitted, asking, began_s, verdict=verdict, stored=stored, reason=reason)
        return verdict, stored, reason

    def _decided(
        self,
        asking: Asking,
        completion: Completion,
        layout: Layout,
        lineage: tuple[Lineage, ...],
        snapshot: Snapshot | None,
    ) -> Admit | Reject:
        if not self._stores:
            return Reject(check="no_store", detail="there is no store, or no key to sign with")
        if snapshot is None and not asking.request.no_store:
            return Reject(check="store_error", detail="the store did not say what stands now")
        verdict = admission.decide(
            asking.request,
            completion,
            lineage=lineage,
            citations=answers.labels(layout),
            policy=self._policy,
            now=self._clock(),
        )
        if isinstance(verdict, Admit) and not self._rates.allow(asking.scope):
            return Reject(check="write_rate", detail="principal or tenant writes too fast")
        return verdict

    def _spread(self, request: Request, verdict: Admit) -> Admit:
        """Shorten a lifetime that nobody asked for by a random share: entries that were stored
        together would expire together, and all be asked anew at once.
        """
        if request.ttl_s is not None or request.expire_at is not None:
            return verdict
        share = self._policy.ttl_jitter * (1.0 - self._draw())
        return replace(verdict, ttl_s=verdict.ttl_s * (1.0 - share))

    def _entry(
        self,
        asking: Asking,
        completion: Completion,
        layout: Layout,
        lineage: tuple[Lineage, ...],
        verdict: Admit,
    ) -> Entry:
        now = self._clock()
        return Entry(
            id=EntryId(str(uuid.uuid4())),
            scope=asking.scope,
            keys=asking.keys,
            question=question_of(asking.request),
            answer={
                **answers.stored_form(completion, layout),
                "made_by": {
                    "request": asking.request_id,
                    "target": asking.asked.name,
                    "revision": asking.asked.revision,
                    "policy": asking.asked.policy,
                },
            },
            lineage=lineage,
            created_at=now,
            expire_at=now + timedelta(seconds=verdict.ttl_s),
            state=verdict.state,
            version=asking.request.version,
            model=completion.model or asking.asked.model,
        )

    async def _put(
        self,
        asking: Asking,
        understanding: Understanding,
        entry: Entry,
        snapshot: Snapshot | None,
    ) -> _Put:
        """Store in the background; wait for the outcome only within its budget."""
        if self._parts.store is None or self._keyring is None:
            return _Put(stored=False, reason="no_store")
        if snapshot is None:
            return _Put(stored=False, reason="store_error")
        task = self._parts.queued(self._sign_and_put(asking, understanding, entry, snapshot))
        if task is None:
            self._parts.degraded(asking, "store", "queue_full")
            return _Put(stored=False, reason="store_queue_full")
        patience_s = min(self._parts.budgets.put_s, max(0.0, self._parts.left_s(asking)))
        with self._parts.waiting(asking):
            done, _ = await asyncio.wait({task}, timeout=patience_s)
        return task.result() if done else _Put(stored=None, reason="store_pending")

    async def _sign_and_put(
        self, asking: Asking, understanding: Understanding, entry: Entry, snapshot: Snapshot
    ) -> _Put:
        store, keyring = self._parts.store, self._keyring
        if store is None or keyring is None:
            return _Put(stored=False, reason="no_store")
        embedding = await self._embedding(asking, understanding)
        reading = understanding.reading if understanding.embedding is embedding else None
        reading = reading or lookup.read(entry.question, embedding)
        entry = replace(
            entry,
            reading={**reading.as_json(), lookup.SUPPORT: _support(asking.request, entry)},
            vector=embedding.vector if embedding else None,
            embedder=self._parts.embedder.id if self._parts.embedder and embedding else "",
        )
        try:
            decided = await self._sharing.decided(store, entry, embedding)
            if isinstance(decided, Refused):
                return _Put(stored=False, reason=decided.reason)
            reason = await store.put(keyring.sign(decided), snapshot)
        except IsolationError:
            raise
        except Exception as error:  # noqa: BLE001 -- a failed store never breaks a request; the event tells
            self._parts.degraded(asking, "store", "put_error", f"{type(error).__name__}: {error}")
            return _Put(stored=False, reason="store_error")
        return _Put(stored=not reason, reason=reason, state=decided.state)

    async def _embedding(self, asking: Asking, understanding: Understanding) -> Embedding | None:
        if understanding.embedding is not None:
            return understanding.embedding
        if not self._can_embed(asking.request):
            return None
        found = await self._parts.embedded(asking, question_of(asking.request))
        return None if isinstance(found, Miss) else found

    def _can_embed(self, request: Request) -> bool:
        store = self._parts.store
        if self._parts.embedder is None or store is None or not store.has_vectors:
            return False
        return not (request.exact_only or leans_on_history(request))


def _support(request: Request, entry: Entry) -> list[str]:
    answer = str(entry.answer.get("text", ""))
    return lookup.support_of(answer, [document.text for document in request.documents])
