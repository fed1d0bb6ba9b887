"""A small face for those who call the model themselves: get an answer, or put one.

The same keys, gates, lineage, isolation and admission as the pipeline, because these are its own
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .. import types
from ..layout import arrange
from ..protocols import Snapshot
from ..types import Document, EntryId, Request, documents_from
from .asking import Asked, Asking, Policies, Understanding, ask
from .finding import Finding
from .storing import Storing


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An answer that may be served. `similarity` is for trusted callers only."""

    answer: str
    kind: str
    similarity: float
    age_s: float
    ttl_s: float
    entry: EntryId
    request_id: str = ""

    def __bool__(self) -> bool:
        """A hit is true, a miss is false."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """No answer may be served, and why.

    `begun` is what an answer written now will depend on: give the miss to `put`.
    """

    reason: str
    begun: Snapshot | None = None

    def __bool__(self) -> bool:
        """A hit is true, a miss is false."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Whether an answer was stored, and if not, why."""

    stored: bool | None
    reason: str = ""


class Answers:
    """The answers of one tenant, for one model and version of the prompt.

    answers = cache.answers(tenant="acme", model="m", prompt_version="3")
    found = await answers.get(question, documents=documents)
    """

    def __init__(
        self,
        finding: Finding,
        storing: Storing,
        *,
        base: Request,
        policies: Policies,
        clock: Callable[[], datetime],
    ) -> None:
        self._finding = finding
        self._storing = storing
        self._base = base
        self._policies = policies
        self._clock = clock

    async def get(
        self, question: str, *, documents: Sequence[str | Document] = (), **fields: Any
    ) -> Hit | Miss:
        """Return a stored answer that may be served, or why there is none.

        Args:
            question: What is asked.
            documents: What was retrieved now, best first; texts or documents.
            fields: Further fields of `Request`.

        Raises:
            MissingTenantError: The tenant is empty.
            RequestError: A field has no canonical form.
        """
        asking = self._asking(question, documents, fields)
        found = await self._finding.find(asking, Understanding())
        if isinstance(found, types.Miss):
            return Miss(reason=found.reason, begun=await self._storing.snapshot(asking))
        self._finding.used(asking, found)
        now = self._clock()
        return Hit(
            answer=str(found.entry.answer["text"]),
            kind=found.kind,
            similarity=found.similarity,
            age_s=(now - found.entry.created_at).total_seconds(),
            ttl_s=(found.entry.expire_at - now).total_seconds(),
            entry=found.entry.id,
            request_id=asking.request_id,
        )

    def report_bad(self, hit: Hit) -> bool:
        """Note that a hit was wrong: its entry is taken out of service, and the guard counts it.

        Returns: Whether it was a semantic hit of this process that is still known.
        """
        return self._finding.reported(hit.request_id)

    async def put(
        self,
        question: str,
        answer: str,
        *,
        documents: Sequence[str | Document] = (),
        since: Miss | None = None,
        finish_reason: str = "stop",
        **fields: Any,
    ) -> Put:
        """Store an answer if admission lets it.

        Args:
            question: What was asked.
            answer: The model's whole answer.
            documents: What the model was given, best first.
            since: The miss of `get`: a document changed since then makes the answer unservable.
                Without it, only changes after this call are seen.
            finish_reason: As the model reported it; only "stop" is stored.
            fields: Further fields of `Request`: `ttl_s`, `version`, `expire_at`, ...
        """
        asking = self._asking(question, documents, fields)
        begun = since.begun if since is not None else None
        snapshot = begun or await self._storing.snapshot(asking)
        layout = arrange(asking.request, policy=self._policies.layout)
        completion = types.Completion(text=answer, finish_reason=finish_reason)
        _, stored, reason = await self._storing.admit(
            asking, Understanding(), completion, layout, snapshot
        )
        return Put(stored=stored, reason=reason)

    def _asking(
        self, question: str, documents: Sequence[str | Document], fields: dict[str, Any]
    ) -> Asking:
        request = self._base.replace(
            question=question, documents=documents_from(documents), **fields
        )
        asked = Asked(
            name="answers",
            model=request.model or "",
            revision=self._policies.revision,
            policy=self._policies.version,
        )
        return ask(request, asked, self._policies.admission)
