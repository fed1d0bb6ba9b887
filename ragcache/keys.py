"""Keys: an injective encoding, hashed with SHA-256, over every field that shapes an answer.

A field that nobody listed is part of the key. The exceptions are named below, with the reason
for each; that way round, a field added later can cause a miss, never a wrong hit.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from .errors import MissingTenantError, RequestError
from .types import (
    Document,
    Fingerprint,
    Formatted,
    Keys,
    Message,
    PrincipalId,
    Request,
    Scope,
    TenantId,
)

KEY_SCHEMA = 1

#: Fields of a request that do not shape the answer, each with its reason.
_NOT_SHAPING = {
    "metadata": "never sent",
    "volatile": "declared by the caller as not shaping the answer",
    "session": "where state is kept; the turns themselves are in history",
    "no_cache": "a control",
    "no_store": "a control",
    "refresh": "a control",
    "only_if_cached": "a control",
    "no_collapse": "a control",
    "exact_only": "a control",
    "anonymous": "says no more than that the tenant is made up",
    "max_age_s": "a control, checked against the entry",
    "ttl_s": "a control",
    "expire_at": "a control",
    "threshold": "a control, checked against the similarity",
}

#: Body fields that do not shape the answer.
_NOT_SHAPING_PARAMS = frozenset(
    {"stream", "stream_options", "user", "metadata", "timeout", "request_id", "extra_headers"}
)

#: Fields with a part of their own in the scope or in one of the two exact keys.
_PLACED = frozenset(
    {"tenant", "principal", "sharing", "namespace", "access"}  # columns of the scope
    | {"question", "standalone", "documents", "history", "formatted"}  # see `_context`
)
#: All others.
_SHAPING = tuple(
    f.name for f in fields(Request) if f.name not in _NOT_SHAPING and f.name not in _PLACED
)


def encode(value: Any) -> bytes:
    """Return an injective encoding of plain data: typed, length-prefixed, order-free for maps.

    Raises:
        RequestError: A value of a type that has no canonical form.
    """
    return _PLAIN.get(type(value), _encode_other)(value)


def _encode_other(value: Any) -> bytes:
    """Encode what is of no plain type itself: subclasses, other containers, dataclasses."""
    for kind, of_kind in _KINDS:
        if isinstance(value, kind):
            return of_kind(value)
    name = type(value).__name__
    if is_dataclass(value) and not isinstance(value, type):
        return _sequence([name, {f: getattr(value, f) for f in _fields(type(value))}])
    if hasattr(value, "model_json_schema"):
        return _sequence([name, value.model_json_schema()])
    raise RequestError(
        f"cannot make a key from a {name}: pass plain data "
        "(str, numbers, lists, dicts) in the request's fields"
    )


@functools.cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _frame(tag: bytes, body: bytes) -> bytes:
    return b"%b%d:%b" % (tag, len(body), body)


def _many(tag: bytes, rows: Sequence[bytes]) -> bytes:
    body = b"%d:%b" % (len(rows), b"".join(rows))
    return b"%b%d:%b" % (tag, len(body), body)


def _none(_: None) -> bytes:
    return b"n0:"


def _bool(value: bool) -> bytes:  # noqa: FBT001 -- the value itself
    return b"b1:1" if value else b"b1:0"


def _str(value: str) -> bytes:
    body = value.encode("utf-8", "surrogatepass")
    return b"s%d:%b" % (len(body), body)


def _bytes(value: bytes | bytearray) -> bytes:
    return _frame(b"y", bytes(value))


def _int(value: int) -> bytes:
    return _frame(b"i", str(value).encode())


def _float(value: float) -> bytes:
    return _frame(b"f", value.hex().encode())


def _mapping(value: Mapping[Any, Any]) -> bytes:
    rows = sorted(zip(_each(value), _each(value.values()), strict=True))
    return _many(b"m", [key + held for key, held in rows])


def _set(value: Set[Any]) -> bytes:
    return _many(b"u", sorted(_each(value)))


def _sequence(value: Sequence[Any]) -> bytes:
    return _many(b"l", _each(value))


def _each(values: Iterable[Any]) -> list[bytes]:
    """Encode each value; `encode` is spelled out, because most of a key is made here."""
    of, other = _PLAIN.get, _encode_other
    return [of(type(value), other)(value) for value in values]


#: Of two kinds that a value is of (True is an int too), the first one counts.
_KINDS: tuple[tuple[Any, Callable[[Any], bytes]], ...] = (
    (type(None), _none),
    (bool, _bool),
    (str, _str),
    ((bytes, bytearray), _bytes),
    (int, _int),
    (float, _float),
    (Mapping, _mapping),
    (Set, _set),
    (Sequence, _sequence),
)
#: The same, found at once for values of just these types.
_PLAIN: dict[type, Callable[[Any], bytes]] = {
    kind: next(of_kind for kinds, of_kind in _KINDS if issubclass(kind, kinds))
    for kind in (type(None), bool, str, bytes, int, float, dict, set, frozenset, list, tuple)
}


def fingerprint(*values: Any) -> Fingerprint:
    """Return the SHA-256 of the injective encoding, in hex."""
    return Fingerprint(hashlib.sha256(encode(values)).hexdigest())


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no blanks. Lists keep their order."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# --- text --------------------------------------------------------------------------------------

_CLOSING = re.compile(r"[\s.!?。！？…]+$")


def fold(text: str) -> str:
    """Return the text NFKC-folded and without format characters (UTR 36 section 2)."""
    if text.isascii():  # is folded already, and holds no format character
        return text
    folded = unicodedata.normalize("NFKC", text)
    return "".join(c for c in folded if unicodedata.category(c) != "Cf")


def normal_question(question: str) -> str:
    """Return the question with case, blanks and closing punctuation folded."""
    return _CLOSING.sub("", " ".join(fold(question).casefold().split()))


def normal_text(text: str) -> str:
    """Return document text with newlines unified and trailing blanks removed."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def content_hash(text: str) -> Fingerprint:
    """Return the hash of a document's normalised text."""
    return _known_hash(text) if len(text) <= REMEMBERED_CHARS else _content_hash(text)


def _content_hash(text: str) -> Fingerprint:
    return Fingerprint(hashlib.sha256(normal_text(text).encode()).hexdigest())


def raw_hash(text: str) -> str:
    """Return the SHA-256 of the text as it is, in hex: `encode(sha256(text::bytea), 'hex')`."""
    return _known_raw_hash(text) if len(text) <= REMEMBERED_CHARS else _raw_hash(text)


def _raw_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


#: What is read of a document is remembered up to this length: the same ones come again and again.
REMEMBERED_CHARS = 16_384
_known_hash = functools.lru_cache(maxsize=2048)(_content_hash)
_known_raw_hash = functools.lru_cache(maxsize=2048)(_raw_hash)


# --- scope and keys ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What shapes an answer besides the request: the target and the policies in force."""

    target: str
    model: str
    revision: str = ""
    policy: str = ""


def scope_of(request: Request, identity: Identity) -> Scope:
    """Return where the request may look and store.

    Raises:
        MissingTenantError: The request names no tenant.
        RequestError: A field holds a value without a canonical form.
    """
    if not isinstance(request.tenant, str) or not request.tenant.strip():
        raise MissingTenantError
    tenant = TenantId(request.tenant)
    principal = PrincipalId(request.principal or request.tenant)
    group = f"principal:{principal}" if request.sharing == "private" else request.sharing
    partition = fingerprint(
        KEY_SCHEMA,
        tenant,
        group,
        request.namespace,
        request.access,
        identity,
        _shaping(request),
        _context(request),
    )
    return Scope(
        tenant=tenant,
        principal=principal,
        group=group,
        namespace=request.namespace,
        partition=partition,
        access=request.access,
    )


def keys_of(request: Request, scope: Scope) -> Keys:
    """Return the exact key and the normalised one.

    The exact key takes the documents as a set of contents: their order is ours to choose.
    """
    documents: list[str] = sorted(content_hash(d.text) for d in request.documents)
    if request.formatted is not None:  # a block may hold more than its document: a title, a date
        documents += sorted(raw_hash(block) for block in request.formatted.blocks)
    asked = question_of(request)
    return Keys(
        exact=fingerprint(scope.partition, asked, request.question, request.history, documents),
        normal=fingerprint(scope.partition, normal_question(asked)),
    )


def question_of(request: Request) -> str:
    """Return the question that is matched: the stand-alone form where one is given."""
    return request.standalone or request.question


def _shaping(request: Request) -> dict[str, Any]:
    shaping = {name: getattr(request, name) for name in _SHAPING}
    shaping["tools"] = sorted(canonical_json(_plain(tool)) for tool in request.tools)
    shaping["params"] = {k: v for k, v in request.params.items() if k not in _NOT_SHAPING_PARAMS}
    return shaping


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value


def _context(request: Request) -> Any:
    """What stands around the question: the turns before it and the words of the template.

    With a stand-alone question the turns shape only the exact key.
    """
    if request.standalone:
        return [[], _skeleton(request.formatted, request.question, with_turns=False)]
    return [list(request.history), _skeleton(request.formatted, request.question)]


def _skeleton(formatted: Formatted | None, question: str, *, with_turns: bool = True) -> Any:
    """Return the formatted prompt with its blocks and its question cut out."""
    if formatted is None:
        return None
    rows: list[Any] = []
    for at, message in enumerate(formatted.messages):
        if not with_turns and _is_turn(formatted, at):
            continue
        if at == formatted.index and formatted.blocks:
            holes = [_cut(formatted.head, question), formatted.separator]
            holes.append(_cut(formatted.tail, question))
            body: Any = [formatted.part, holes, _others(message, formatted.part, question)]
        else:
            last = at == len(formatted.messages) - 1 and isinstance(message.content, str)
            body = _cut(message.text(), question) if last else message.content
        rows.append([message.role, body, message.tool_calls, message.tool_call_id])
        rows.append([message.name, message.extra])
    return rows


def _is_turn(formatted: Formatted, at: int) -> bool:
    """Whether a message belongs to the conversation and not to the template around it."""
    is_template = at == len(formatted.messages) - 1 or (at == formatted.index and formatted.blocks)
    return not is_template and formatted.messages[at].role not in ("system", "developer")


def _cut(text: str, question: str) -> list[str]:
    """Return the text with the question cut out, wherever it stands."""
    return text.split(question) if question else [text]


def _others(message: Message, part: int | None, question: str) -> list[Any]:
    """Return the parts beside that of the blocks; the question may stand in one of them."""
    if part is None or isinstance(message.content, str):
        return []
    others = [p for at, p in enumerate(message.content) if at != part]
    return [
        {**p, "text": _cut(p["text"], question)} if isinstance(p.get("text"), str) else p
        for p in others
    ]


# --- salts -------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def cache_salt(secret: bytes, *trust_group: str) -> str:
    """Return the KV cache salt of a trust group: 43 URL-safe characters.

    HMAC-SHA256 with the operator's secret, so that a salt cannot be guessed from a tenant's
    name; the shape is one no engine refuses (CVE-2026-105756: a malformed salt kills it).

    Raises:
        MissingTenantError: The trust group is empty or has an empty part.
    """
    if not trust_group or not all(trust_group):
        raise MissingTenantError
    digest = hmac.new(secret, b"ragcache/salt/1" + encode(trust_group), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def document_key(document: Document) -> str:
    """Return the stable name of a document: source where it has one, else its content."""
    return document.source or content_hash(document.text)
