"""What travels through the stages of one request."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ..admission import AdmissionPolicy, is_personal
from ..keys import Identity, keys_of, scope_of
from ..layout import LayoutPolicy
from ..lookup import GuardPolicy, LookupPolicy, Reading
from ..types import (
    Admit,
    Candidate,
    Completion,
    Embedding,
    Fingerprint,
    Hit,
    Keys,
    Layout,
    Reject,
    Request,
    Reuse,
    Scope,
    Sharing,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """How long a request waits for the cache's own parts, in seconds.

    Args:
        store_s: For the store, all lookups of a request together.
        embed_s: For the embedding of its question.
        verify_s: For a second opinion on candidates of the grey zone.
        put_s: For the word that its answer is stored, within what is left of `store_s`; the
            storing goes on without it.
        turn_s: For another process that asks the same; 0 does not wait.
        warm_first_s: For the first token of another request over the same cold blocks; 0 (the
            default) does not wait.
    """

    store_s: float = 0.050
    embed_s: float = 0.250
    verify_s: float = 0.100
    put_s: float = 0.050
    turn_s: float = 30.0
    warm_first_s: float = 0.0


def guard_for(policy: LookupPolicy, **fields: Any) -> GuardPolicy:
    """Return a guard that never goes below the operator's threshold."""
    return GuardPolicy(
        **{
            "floor": policy.threshold,
            "uncertified": max(policy.threshold, policy.uncertified_threshold),
        }
        | fields
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """What is decided how.

    `lookups` holds for one namespace and language ("" for any) in place of `lookup`.
    `second_at` is the score from which a second opinion lets a candidate of the grey zone pass, and
    `judge` has the target asked about such candidates in the background.
    `revision` is the model's and `version` the policies' own, as the operator names them: answers
    of another one are another partition, and stop being served at once.
    """

    layout: LayoutPolicy = field(default_factory=LayoutPolicy)
    lookup: LookupPolicy = field(default_factory=LookupPolicy)
    lookups: Mapping[tuple[str, str], LookupPolicy] = field(default_factory=dict)
    admission: AdmissionPolicy = field(default_factory=AdmissionPolicy)
    budgets: Budgets = field(default_factory=Budgets)
    guard: GuardPolicy | None = None
    second_at: float = 0.90
    judge: bool = False
    revision: str = ""
    version: str = ""

    @property
    def guarding(self) -> GuardPolicy:
        """The guard's policy; by default its floor is the operator's threshold."""
        return self.guard or guard_for(self.lookup)

    def lookup_of(self, namespace: str, language: str) -> LookupPolicy:
        """Return the policy for questions of a namespace in a language."""
        for key in ((namespace, language), (namespace, ""), ("", language)):
            if key in self.lookups:
                return self.lookups[key]
        return self.lookup

    def guarding_of(self, policy: LookupPolicy) -> GuardPolicy:
        """Return the guard's policy with the thresholds of one of the `lookups`."""
        if policy is self.lookup:
            return self.guarding
        uncertified = max(policy.threshold, policy.uncertified_threshold)
        return replace(self.guarding, floor=policy.threshold, uncertified=uncertified)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who is asked, as far as keys and events must know."""

    name: str
    model: str
    provider: str = ""
    revision: str = ""
    policy: str = ""


@dataclass(slots=True, kw_only=True)
class Waited:
    """How long one request has waited for the store: its budget is for all its lookups together."""

    store_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A request with all that is derived from it once, and what it has waited so far."""

    request: Request
    asked: Asked
    scope: Scope
    keys: Keys
    request_id: str
    began_s: float
    #: Hashes of its blocks in the order to print them, where a schedule has chosen it.
    wanted: tuple[Fingerprint, ...] | None = None
    waited: Waited = field(default_factory=Waited, compare=False)
    #: Who shares its prefixes: as the request says, also where its answer is personal.
    prefix_sharing: Sharing = "private"

    @property
    def trust_group(self) -> tuple[str, ...]:
        """Who may share KV blocks and the order of documents."""
        if self.prefix_sharing == "public":
            return ("public",)
        return ("tenant", self.scope.tenant)


def ask(
    request: Request,
    asked: Asked,
    policy: AdmissionPolicy | None = None,
    *,
    wanted: tuple[Fingerprint, ...] | None = None,
) -> Asking:
    """Derive scope and keys.

    By the policy a personal question is its principal's own, however the request was shared. Where
    nobody said whose it is, it is left as it is, and not stored.

    Raises:
        MissingTenantError: The request names no tenant.
        RequestError: A field holds a value that has no canonical form.
    """
    began_s = time.perf_counter()
    identity = Identity(
        target=asked.name, model=asked.model, revision=asked.revision, policy=asked.policy
    )
    sharing = request.sharing
    if policy is not None and request.principal and is_personal(request, policy):
        request = request.replace(sharing="private")
    scope = scope_of(request, identity)
    return Asking(
        request=request,
        asked=asked,
        scope=scope,
        keys=keys_of(request, scope),
        request_id=str(request.metadata.get("request_id") or uuid.uuid4().hex),
        began_s=began_s,
        wanted=wanted,
        prefix_sharing=sharing,
    )


@dataclass(slots=True, kw_only=True)
class Understanding:
    """What the lookup learned about the question, kept for the store."""

    reading: Reading | None = None
    embedding: Embedding | None = None
    #: Passed every gate, but not the threshold that holds now.
    below: Hit | None = None
    #: Past every gate but for a word that nothing explains, and nobody has told yet.
    grey: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one call to the target gave, for everybody who waited for it."""

    completion: Completion
    layout: Layout
    reuse: Reuse
    verdict: Admit | Reject
    stored: bool | None
    store_reason: str
    ttft_s: float | None


def utc_now() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)
