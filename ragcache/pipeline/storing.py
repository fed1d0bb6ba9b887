"""Stage 4: may the answer be stored, and if so store it, without making the caller wait."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
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
    Layout,
    Lineage,
    Miss,
    Reject,
    Request,
)
from .asking import Asking, Understanding
from .finding import leans_on_history
from .parts import Parts


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
        lineage = answers.lineage(layout, completion)
        verdict = self._decided(asking.request, completion, layout, lineage)
        stored: bool | None = False
        reason = verdict.check if isinstance(verdict, Reject) else ""
        if isinstance(verdict, Admit):
            verdict = self._spread(asking.request, verdict)
            entry = self._entry(asking, completion, layout, lineage, verdict)
            stored, reason = await self._put(asking, understanding, entry, snapshot)
        self._parts.emit(Admitted, asking, began_s, verdict=verdict, stored=stored, reason=reason)
        return verdict, stored, reason

    def _decided(
        self,
        request: Request,
        completion: Completion,
        layout: Layout,
        lineage: tuple[Lineage, ...],
    ) -> Admit | Reject:
        if self._parts.store is None or self._keyring is None:
            return Reject(check="no_store", detail="there is no store, or no key to sign with")
        return admission.decide(
            request,
            completion,
            lineage=lineage,
            citations=answers.labels(layout),
            policy=self._policy,
            now=self._clock(),
        )

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
            answer=answers.stored_form(completion, layout),
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
    ) -> tuple[bool | None, str]:
        """Store in the background; wait for the outcome only within its budget."""
        if self._parts.store is None or self._keyring is None:
            return False, "no_store"
        if snapshot is None:
            return False, "store_error"
        task = self._parts.queued(self._sign_and_put(asking, understanding, entry, snapshot))
        if task is None:
            self._parts.degraded(asking, "store", "queue_full")
            return False, "store_queue_full"
        patience_s = min(self._parts.budgets.put_s, max(0.0, self._parts.left_s(asking)))
        with self._parts.waiting(asking):
            done, _ = await asyncio.wait({task}, timeout=patience_s)
        if not done:
            return None, "store_pending"
        reason = task.result()
        return not reason, reason

    async def _sign_and_put(
        self, asking: Asking, understanding: Understanding, entry: Entry, snapshot: Snapshot
    ) -> str:
        store, keyring = self._parts.store, self._keyring
        if store is None or keyring is None:
            return "no_store"
        embedding = await self._embedding(asking, understanding)
        entry = replace(
            entry,
            reading=lookup.read(entry.question, embedding).as_json(),
            vector=embedding.vector if embedding else None,
            embedder=self._parts.embedder.id if self._parts.embedder and embedding else "",
        )
        try:
            return await store.put(keyring.sign(entry), snapshot)
        except IsolationError:
            raise
        except Exception as error:  # noqa: BLE001 -- a failed store never breaks a request; the event tells
            self._parts.degraded(asking, "store", "put_error", f"{type(error).__name__}: {error}")
            return "store_error"

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
