"""The nouns: frozen values that travel through the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NewType, TypeAlias

if TYPE_CHECKING:  # the nouns are light: they load no numpy
    import numpy as np
    from numpy.typing import NDArray

TenantId = NewType("TenantId", str)
PrincipalId = NewType("PrincipalId", str)
EntryId = NewType("EntryId", str)
#: SHA-256 in hex over an injective encoding: an exact key, a partition, a content hash.
Fingerprint = NewType("Fingerprint", str)
#: The short decimal label a block carries in the prompt.
Label = NewType("Label", str)

#: One sentence vector, float32, unit length.
Vector: TypeAlias = "NDArray[np.float32]"
JsonObject: TypeAlias = Mapping[str, Any]

Sharing = Literal["private", "tenant", "public"]
#: A message's content: plain text, or the content parts of a multimodal API.
Content: TypeAlias = str | tuple[JsonObject, ...]


# --- what comes in -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One retrieved document or chunk, in retrieval order within a request.

    Args:
        text: What the model reads. Newlines are normalised when the block is made.
        source: A name that stays when the text is ingested again: a path, a URL.
        id: The caller's id of this chunk. May be random or absent.
        score: Similarity or distance as the retriever gave it; never printed.
        metadata: Printed only where the layout is told which keys; `source` aside.
        access: Tags an asker must hold, all of them, to be served an answer from this text.
        aliases: Further names of what this text was cut from, under which it may change.
    """

    text: str
    source: str = ""
    id: str | None = None
    score: float | None = None
    metadata: JsonObject = field(default_factory=dict)
    access: frozenset[str] = frozenset()
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name under which a change of this document may be announced."""
        names = [name for name in (self.id, self.source, *self.aliases) if name]
        return tuple(dict.fromkeys(names)) if len(names) > 1 else tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message as it is sent. `extra` holds fields ragcache does not read."""

    role: str
    content: Content
    name: str | None = None
    tool_calls: tuple[JsonObject, ...] = ()
    tool_call_id: str | None = None
    extra: JsonObject = field(default_factory=dict)

    def text(self) -> str:
        """Return the text parts, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part.get("text", "")) for part in self.content if _is_text(part))

    def wire(self) -> dict[str, Any]:
        """Return the message as an OpenAI-compatible body carries it."""
        content = self.content if isinstance(self.content, str) else [dict(p) for p in self.content]
        body: dict[str, Any] = {"role": self.role, "content": content, **self.extra}
        if self.name is not None:
            body["name"] = self.name
        if self.tool_calls:
            body["tool_calls"] = [dict(call) for call in self.tool_calls]
        if self.tool_call_id is not None:
            body["tool_call_id"] = self.tool_call_id
        return body


def _is_text(part: JsonObject) -> bool:
    return part.get("type", "text") in ("text", "input_text", "output_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Formatted:
    """A prompt that somebody else formatted, with its document blocks located.

    The text of `messages[index]` (or of its content part `part`) is exactly
    `head + separator.join(blocks) + tail`; only the order of `blocks` may change.
    Without blocks the prompt goes out as it is. `blocks[i]` is the text of
    `Request.documents[i]`; further documents stand elsewhere in the prompt and stay there.
    """

    messages: tuple[Message, ...]
    index: int = 0
    part: int | None = None
    head: str = ""
    separator: str = ""
    blocks: tuple[str, ...] = ()
    tail: str = ""
    #: Why no block could be located; empty where they were, or where there are none.
    unchanged_because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question of one tenant, with all that reaches the model.

    Args:
        tenant: Whose request this is. Never defaulted.
        principal: Who asks inside the tenant; the tenant itself where none is given.
        question: What is asked now.
        system: Stable system text. Nothing that varies per request belongs here.
        tools: Tool schemas in the OpenAI form.
        documents: Retrieved documents, best first.
        history: Earlier turns, byte for byte as they were sent and received.
        volatile: Values that vary per request (clock, locale, ids): printed in the tail.
        formatted: The prompt as a framework formatted it; then nothing is rendered anew.
        standalone: The question condensed so that it needs no history.
        model: The model asked; the target's own where none is given.
        params: Sampling parameters and every other body field, known to ragcache or not.
        scope: The retriever's filters; another scope is another partition.
        access: Tags the asker holds.
        sharing: Who else may be served the stored answer.
        namespace: A set of entries with its own epoch, threshold and policy.
        session: The conversation, where its state is to be kept.
        version: The caller's version of prompt or corpus; another version is a miss.
        no_cache: Do not serve from the cache. no_store: do not store. refresh: ask anew, store.
        only_if_cached: Do not ask the target.
        no_collapse: Wait for no other request's call. For a caller that blocks the very loop on
            which such a call may run.
        exact_only: Serve equal questions only, and embed nothing.
        anonymous: Nobody said whose request it is, and its tenant is made up for this one call:
            it leaves no state behind, and its prompt is laid out by a rule that needs none.
        max_age_s: Serve no entry older than this.
        ttl_s: Lifetime of the stored answer, capped by the settings.
        expire_at: Latest moment at which the stored answer may be served.
        threshold: Stricter similarity threshold; a lower one than the floor is ignored.
        metadata: Not part of any key and not sent: request id, user, tags.
    """

    tenant: str
    question: str
    principal: str | None = None
    system: str = ""
    tools: tuple[JsonObject, ...] = ()
    documents: tuple[Document, ...] = ()
    history: tuple[Message, ...] = ()
    volatile: JsonObject = field(default_factory=dict)
    formatted: Formatted | None = None
    standalone: str | None = None
    model: str | None = None
    params: JsonObject = field(default_factory=dict)
    scope: JsonObject = field(default_factory=dict)
    locale: str = ""
    access: frozenset[str] = frozenset()
    sharing: Sharing = "private"
    namespace: str = "default"
    session: str | None = None
    version: str = ""
    no_cache: bool = False
    no_store: bool = False
    refresh: bool = False
    only_if_cached: bool = False
    no_collapse: bool = False
    exact_only: bool = False
    anonymous: bool = False
    max_age_s: float | None = None
    ttl_s: float | None = None
    expire_at: datetime | None = None
    threshold: float | None = None
    metadata: JsonObject = field(default_factory=dict)

    def replace(self, **changes: Any) -> Request:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


# --- stage 1: layout ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A document as it stands in the prompt.

    `documents` are the caller's documents that this block stands for: more than one where
    duplicates were merged. `rank` is the best retrieval rank among them, 0 first.
    """

    label: Label
    text: str
    hash: Fingerprint
    documents: tuple[Document, ...]
    rank: int

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources of the block, best ranked first."""
        return tuple(dict.fromkeys(d.source or d.id or "" for d in self.documents))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A request arranged for reuse: what is sent, and what is known about it.

    Args:
        messages: As sent.
        tools: As sent: sorted by name, schema keys in canonical order.
        blocks: In the order of the prompt.
        dropped: Documents left out because the window was too small, best first.
        boundaries: Character offsets in the rendered prompt after tools and system, and
            after each block: where a reusable prefix may end.
        notes: What a person should know: volatile text in the system message, unmoved blocks.
        predicted_tokens: Tokens expected from the target's prefix cache; None if unknown.
        plan: Opaque to the other stages: what the layout must remember once this was sent.
    """

    messages: tuple[Message, ...]
    tools: tuple[JsonObject, ...] = ()
    blocks: tuple[Block, ...] = ()
    dropped: tuple[Document, ...] = ()
    boundaries: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    predicted_tokens: int | None = None
    plan: Any = None


# --- stage 2: lookup ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """The vector of a text and, where the embedder gives them, its contextual token vectors.

    `spans[i]` is the half-open character range in `text` of the token whose float32 vector is
    `token_vectors[i]`; both are None for embedders that return sentence vectors only.
    """

    text: str
    vector: Vector
    spans: tuple[tuple[int, int], ...] | None = None
    token_vectors: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where a request may look and store: every field is an equality condition."""

    tenant: TenantId
    principal: PrincipalId
    #: Who shares the entry: "principal:<id>", "tenant" or "public".
    group: str
    namespace: str
    partition: Fingerprint
    access: frozenset[str] = frozenset()

    @property
    def is_the_tenants(self) -> bool:
        """Whether no principal was named: the tenant is its own."""
        return str(self.principal) == str(self.tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The two exact keys of a request inside its scope.

    `exact` is over every byte that reaches the model; `normal` over the scope and the question
    with case, blanks and closing punctuation folded, and still passes the gates.
    """

    exact: Fingerprint
    normal: Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """One document an answer came from, as it was then.

    Args:
        names: Names under which a change may be announced: id and source.
        content: Hash of source-independent normalised text.
        raw: SHA-256 hex of the raw text as retrieved, UTF-8: what SQL can compare.
        rank: Retrieval rank, 0 best.
        cited: The answer cites it.
        access: Tags an asker must hold.
    """

    names: tuple[str, ...]
    content: Fingerprint
    raw: str
    rank: int
    cited: bool
    access: frozenset[str] = frozenset()


EntryState = Literal["live", "quarantined", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A stored answer. `reading` and `answer` are plain JSON values."""

    id: EntryId
    scope: Scope
    keys: Keys
    question: str
    answer: JsonObject
    lineage: tuple[Lineage, ...]
    created_at: datetime
    expire_at: datetime
    state: EntryState = "live"
    version: str = ""
    model: str = ""
    embedder: str = ""
    vector: Vector | None = None
    #: The stored question understood once, for the gates.
    reading: JsonObject | None = None
    kid: str = ""
    signature: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A stored answer that might serve, and how alike its question is (1 for exact keys)."""

    entry: Entry
    similarity: float
    #: Documents of the lineage have not changed and the epoch is current, as the store saw it.
    current: bool = True
    #: The question was found by an exact key.
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """An answer that may be served."""

    entry: Entry
    kind: Literal["exact", "semantic"]
    similarity: float
    #: False while too little traffic was judged to bound the error rate.
    certified: bool = True
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """No answer may be served, and why.

    `nearest` is the best similarity seen, hit or not; it never reaches an untrusted caller.
    """

    reason: str
    fwd: Literal["miss", "bypass", "stale", "request"] = "miss"
    nearest: float | None = None
    detail: str = ""


# --- stage 3: target ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call, whatever the provider. None is unknown, never zero.

    `input_tokens` includes what was read from and written to the provider's cache.
    """

    input_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def computed_tokens(self) -> int | None:
        """Input tokens that the target had to compute."""
        if self.input_tokens is None or self.cached_tokens is None:
            return None
        return self.input_tokens - self.cached_tokens

    @property
    def fresh_tokens(self) -> int | None:
        """Input tokens neither read from nor written to the provider's cache.

        Where a provider bills no writes it does not tell them: they count as fresh then.
        """
        computed = self.computed_tokens
        return None if computed is None else computed - (self.cache_write_tokens or 0)

    @property
    def total_tokens(self) -> int | None:
        """Input and output together."""
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens


#: Nothing is known about the usage.
UNKNOWN_USAGE = Usage()

ZERO_USAGE = Usage(
    input_tokens=0,
    cached_tokens=0,
    cache_write_tokens=0,
    cache_write_1h_tokens=0,
    output_tokens=0,
    reasoning_tokens=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakpoint:
    """A place where the provider is told that a prefix ends: behind block `block` of the prompt
    (-1: behind tools and system), with a lifetime in seconds where the provider has several.
    """

    block: int
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is sent to a target. Everything a provider may refuse is a field of its own."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[JsonObject, ...] = ()
    params: JsonObject = field(default_factory=dict)
    cache_salt: str | None = None
    prompt_cache_key: str | None = None
    breakpoints: tuple[Breakpoint, ...] = ()
    layout: Layout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBlocks:
    """The full KV blocks of a prompt in the target's engine, in order, by the mirror's names.

    `block_size` and `prompt_tokens` are in tokens.
    """

    names: tuple[bytes, ...]
    block_size: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A model's answer. `raw` is the target's own object, handed through to an adapter.

    `predicted_tokens` is what the target's engine was known to hold of the prompt just before, by
    its own events, `engine` where the prompt stands there; None where nobody knows.
    """

    text: str
    finish_reason: str | None
    tool_calls: tuple[JsonObject, ...] = ()
    refusal: str | None = None
    usage: Usage = UNKNOWN_USAGE
    model: str = ""
    id: str = ""
    raw: Any = None
    predicted_tokens: int | None = None
    engine: EngineBlocks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a streamed answer. A target's last one carries the completion.

    `raw` is the target's own chunk object, handed through to an adapter. The last chunk that a
    caller of the pipeline gets carries the whole answer with its status.
    """

    text: str = ""
    completion: Completion | None = None
    raw: Any = None
    answer: Answer | None = None


# --- stage 4: admission ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """The answer may be stored, in this state and until then."""

    state: EntryState
    ttl_s: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """The answer may not be stored; `check` names the check that refused it."""

    check: str
    detail: str = ""


# --- what goes out -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatus:
    """What the cache did, after RFC 9211 (Cache-Status, June 2022).

    Args:
        hit: Which tier answered, None where the request went forward.
        fwd: Why it went forward: miss, bypass, stale, request.
        reason: The precise reason, one word of the catalogue in `docs/reasons.md`.
        ttl_s: Remaining lifetime of the entry, stored or served.
        stored: Whether the answer was stored; None while that is still under way.
        collapsed: The answer came from another request's call.
        similarity: For trusted callers only; never in the header form.
        certified: False for a semantic hit while its error rate is not yet bounded.
        store_reason: Why the answer was not stored.
    """

    hit: Literal["exact", "semantic"] | None = None
    fwd: Literal["miss", "bypass", "stale", "request"] | None = None
    reason: str = ""
    ttl_s: float | None = None
    stored: bool | None = False
    collapsed: bool = False
    similarity: float | None = None
    certified: bool = True
    entry: EntryId | None = None
    age_s: float | None = None
    store_reason: str = ""
    detail: str = ""

    def __str__(self) -> str:
        """Return the header form: `ragcache; hit; ttl=341; detail=semantic`."""
        parts = ["ragcache"]
        if self.hit:
            parts.append("hit")
        if self.fwd:
            parts.append(f"fwd={self.fwd}")
        if self.ttl_s is not None:
            parts.append(f"ttl={int(self.ttl_s)}")
        if self.stored:
            parts.append("stored")
        if self.collapsed:
            parts.append("collapsed")
        detail = self.hit or self.reason
        if detail:
            parts.append(f"detail={detail}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """One label in an answer, mapped back to the caller's documents.

    `ranks` are positions in `Request.documents`, 0 first; empty on a hit whose document was
    not retrieved this time.
    """

    label: str
    sources: tuple[str, ...]
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Prefix reuse of one call: what was predicted, what was served, and why they differ."""

    predicted_tokens: int | None = None
    served_tokens: int | None = None
    cause: str = ""
    notes: tuple[str, ...] = ()


NO_REUSE = Reuse()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the caller gets."""

    text: str
    status: CacheStatus
    usage: Usage
    citations: Mapping[str, Citation] = field(default_factory=dict)
    reuse: Reuse = NO_REUSE
    documents: tuple[Document, ...] = ()
    dropped: tuple[Document, ...] = ()
    completion: Completion | None = None
    request_id: str = ""
    ttft_s: float | None = None


def documents_from(texts: Sequence[str | Document]) -> tuple[Document, ...]:
    """Return documents from plain texts, for those who have no more than texts."""
    return tuple(t if isinstance(t, Document) else Document(text=t) for t in texts)
