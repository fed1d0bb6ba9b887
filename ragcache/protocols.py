"""The seams: what a store, a target, an embedder and a tokenizer must do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from .types import (
    Call,
    Candidate,
    Chunk,
    Completion,
    Document,
    Embedding,
    Entry,
    EntryId,
    JsonObject,
    Keys,
    Scope,
    TenantId,
    Vector,
)

#: The reason with which an entry is put aside whose signature does not fit.
BAD_SIGNATURE = "bad_signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What an answer depends on, as it stood when the request began.

    Taken before the target is called; a store compares it when it writes, so that an answer
    begun before an invalidation cannot be served after it.
    """

    epoch: int
    changes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """What is stored near a question by whomever: for admission, never to be served.

    Args:
        own: How alike the writer's own entries are, the nearest first; without the one under the
            same exact key, whose place a new one takes.
        others: Entries of other writers, the nearest first; those that wait in quarantine too.
    """

    own: tuple[float, ...] = ()
    others: tuple[Candidate, ...] = ()


class Store(Protocol):
    """Where answers live. Every method works inside one tenant.

    Raises (every method): StoreUnavailableError where the store cannot be reached.
    """

    #: Short name for messages and metrics: "postgres", "redis".
    name: str
    #: Whether `find_similar` can answer.
    has_vectors: bool

    async def open(self) -> None:
        """Connect and check isolation.

        After StoreUnavailableError the store may be used all the same: it goes on trying, and
        checks before it serves for the first time.

        Raises:
            IsolationError: Tenants are not kept apart.
            MigrationError: The schema is not this version's.
        """

    async def close(self) -> None:
        """Give everything back."""

    async def find_exact(self, scope: Scope, keys: Keys, *, now: datetime) -> Sequence[Candidate]:
        """Return entries under either key, the exact one first."""

    async def find_similar(
        self, scope: Scope, vector: Vector, *, embedder: str, now: datetime, limit: int
    ) -> Sequence[Candidate]:
        """Return the nearest servable entries of this scope, nearest first."""

    async def neighbourhood(
        self,
        scope: Scope,
        keys: Keys,
        vector: Vector | None,
        *,
        embedder: str,
        now: datetime,
        own: int,
        others: int,
    ) -> Neighbourhood:
        """Return what this scope holds near a question, or under its keys, whoever wrote it.

        Args:
            scope: Its principal is the writer; entries that ask for a right that it lacks are
                left out, and so is what was taken out of service, has expired or changed.
            keys: Of the question.
            vector: Of the question; None where it has none.
            embedder: Whose vector.
            now: The moment.
            own: So many of the writer's own are looked for at most.
            others: So many of other writers.
        """

    async def snapshot(self, scope: Scope, documents: Sequence[Document]) -> Snapshot:
        """Return the epoch of the namespace and the change numbers of the documents."""

    async def put(self, entry: Entry, snapshot: Snapshot) -> str:
        """Store the entry unless what it depends on has changed since the snapshot.

        Returns: "" when stored, else why not.
        """

    async def touch(self, scope: Scope, entry: EntryId, *, now: datetime) -> None:
        """Note a hit: never extends a lifetime."""

    async def change(self, tenant: TenantId, names: Sequence[str]) -> int:
        """Note that documents changed; return how many entries that kills."""

    async def bump_epoch(self, tenant: TenantId, namespace: str) -> int:
        """Kill every entry of a namespace; return the new epoch."""

    async def quarantine(self, scope: Scope, entry: EntryId, *, reason: str) -> None:
        """Take an entry out of service and write an audit row."""

    async def purge(self, tenant: TenantId, *, dry_run: bool = False) -> int:
        """Remove every entry of a tenant; return how many."""

    async def recall(
        self, tenant: TenantId, kind: str, key: str, *, now: datetime
    ) -> JsonObject | None:
        """Return a state kept between requests: a conversation, what the guard has learned."""

    async def remember(
        self,
        tenant: TenantId,
        kind: str,
        key: str,
        value: JsonObject,
        *,
        now: datetime,
        expire_at: datetime,
        principal: str = "",
    ) -> None:
        """Keep a state until then; `principal` is whose it is, so that it can be erased."""

    async def exchange(
        self,
        tenant: TenantId,
        kind: str,
        key: str,
        value: JsonObject,
        *,
        seen: int,
        now: datetime,
        expire_at: datetime,
    ) -> bool:
        """Keep a state in place of the one that was recalled, unless somebody has changed it.

        Args:
            tenant, kind, key: Which state.
            value: With a `version` above the one it was made from.
            seen: The `version` that was recalled; 0 where there was no state, or one without.
            now: The moment.
            expire_at: Kept until then.

        Returns: Whether it is kept. If not, recall and count again.
        """

    def alone(self, scope: Scope, key: str) -> AbstractAsyncContextManager[bool]:
        """Hold the turn of a key inside its scope; yields False while another process has it."""


class Named(Protocol):
    """Whose answers they are: what keys know of a target."""

    @property
    def provider(self) -> str:
        """As in `Target`, like all of these."""

    @property
    def name(self) -> str:
        """Identity."""

    @property
    def model(self) -> str:
        """As the provider calls it."""


@runtime_checkable
class Target(Protocol):
    """Who answers a miss."""

    #: "openai", "vllm", "anthropic", ...: selects provider rules and extra fields.
    provider: str
    #: Identity for keys: base URL or engine, never a secret.
    name: str
    model: str

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer. Raises TargetError."""

    def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces; the last one carries the completion."""


@runtime_checkable
class Watched(Protocol):
    """A target that notices when what it was sent is gone from its cache."""

    def watch(self, lost: Callable[[], None]) -> None:
        """Have `lost` called when its engine was restarted, or went away."""


@runtime_checkable
class Mirrored(Protocol):
    """A target that knows what its engines' caches hold, by their own events."""

    @property
    def held(self) -> Container[bytes] | None:
        """Names of the KV blocks held now (`Completion.engine`); None where no events come."""


class Embedder(Protocol):
    """Turns questions into unit vectors."""

    #: Changes whenever vectors may change: model, revision, options, dimensions.
    id: str

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    async def open(self) -> None:
        """Get ready: load weights. Raises ConfigError."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """Return one embedding a text. Raises EmbeddingError."""

    async def close(self) -> None:
        """Give everything back."""


class Verifier(Protocol):
    """A second opinion on whether a stored question asks for the same as one asked now.

    It is asked about candidates of the grey zone only: past every gate, but with a word that
    nothing on the other side explains. One with an attribute `names_told` that is true is asked
    about names too: it has learned them from labelled pairs.
    """

    #: Who it is: model and revision, or file.
    id: str

    async def open(self) -> None:
        """Get ready: load weights. Raises ConfigError."""

    async def opinions(
        self, asked: str, embedding: Embedding, stored: Sequence[Candidate]
    ) -> Sequence[float]:
        """Return for each candidate how sure it is, 0 to 1, that its answer fits the question.

        Args:
            asked: The question asked now.
            embedding: Of the same question.
            stored: The candidates, nearest first.

        Raises:
            VerifierError: It cannot tell.
        """

    async def close(self) -> None:
        """Give everything back."""


class Tokenizer(Protocol):
    """Counts and cuts tokens as the target does."""

    def encode(self, text: str) -> Sequence[int]:
        """Return the token ids of a text."""

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
