"""What a framework's adapter binds to a model, and what a single call may ask of the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import RequestError
from .types import Answer, Request

#: Names under which frameworks carry a tenant, and who asks inside it.
TENANT_NAMES = ("tenant_id", "tenant")
PRINCIPAL_NAMES = ("principal_id", "principal", "user_id")

#: What whoever binds a model may set once for all its calls.
BINDABLE = frozenset(
    {"sharing", "access", "namespace", "version", "scope", "locale", "ttl_s", "threshold"}
    | {"max_age_s", "no_cache", "no_store"}
)
#: What a call may ask by itself; `access` and `sharing` come from the server's side only.
CONTROLS = frozenset(
    {"no_cache", "no_store", "refresh", "only_if_cached", "max_age_s", "ttl_s", "expire_at"}
    | {"version", "threshold", "standalone", "session"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A tenant and who asks inside it; None where nobody said."""

    tenant: str | None = None
    principal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a model was wrapped.

    Args:
        identity: The tenant and principal bound to it.
        provider: "openai", "vllm", "anthropic", "generic": which extra fields may be sent; None
            sends none.
        request: Fields of every request.

    Raises:
        RequestError: A field of every request is unknown.
    """

    identity: Identity = field(default_factory=Identity)
    provider: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_unknown(self.request, BINDABLE, "wrap()")
        assert {f.name for f in fields(Request)} >= BINDABLE | CONTROLS  # noqa: S101 -- the two lists name fields


def identify(bound: Identity, places: Mapping[str, Mapping[str, Any]]) -> Identity:
    """Return who asks: as bound, else as the first of the places says.

    Raises:
        RequestError: Two of them name different tenants or principals.
    """
    return Identity(
        tenant=_one("tenant", bound.tenant, places, TENANT_NAMES),
        principal=_one("principal", bound.principal, places, PRINCIPAL_NAMES),
    )


def _one(
    what: str, bound: str | None, places: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> str | None:
    said = [("wrap()", bound)] if bound else []
    for place, values in places.items():
        said += [(place, str(values[n])) for n in names if values.get(n)][:1]
    if len({value for _, value in said}) > 1:
        told = ", ".join(f"{place} says {value!r}" for place, value in said)
        raise RequestError(f"two {what}s for one request: {told}; make them agree")
    return said[0][1] if said else None


def controls(*asked: Any) -> dict[str, Any]:
    """Return the controls of one call, later ones first.

    Raises:
        RequestError: One is unknown.
    """
    found: dict[str, Any] = {}
    for given in asked:
        if isinstance(given, Mapping):
            _refuse_unknown(given, CONTROLS, "the call's 'ragcache'")
            found |= given
    return found


def _refuse_unknown(given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    if unknown := sorted(set(given) - known):
        raise RequestError(
            f"{where} knows no {', '.join(unknown)}; it takes {', '.join(sorted(known))}"
        )


def told_of(answer: Answer) -> dict[str, Any]:
    """Return what the cache did, as plain JSON; no similarity, which a caller must not see."""
    status = answer.status
    told = {
        "status": str(status),
        "hit": status.hit,
        "fwd": status.fwd,
        "reason": status.reason or None,
        "stored": status.stored,
        "store_reason": status.store_reason or None,
        "collapsed": status.collapsed or None,
        "certified": None if status.certified else False,
        "entry": status.entry,
        "age_s": status.age_s,
        "ttl_s": status.ttl_s,
        "request_id": answer.request_id,
    }
    return {name: value for name, value in told.items() if value is not None}
