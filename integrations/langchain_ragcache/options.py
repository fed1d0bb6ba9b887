"""What `wrap` is told once, and what a single call may ask of the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ragcache.errors import RequestError
from ragcache.types import Request

from .identity import Identity

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
class Options:
    """How a model was wrapped.

    Args:
        identity: The tenant and principal bound to it.
        provider: "openai", "vllm", "anthropic", "generic": which extra fields may be sent; None
            sends none.
        request: Fields of every request.
    """

    identity: Identity = field(default_factory=Identity)
    provider: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_unknown(self.request, BINDABLE, "wrap()")
        assert {f.name for f in fields(Request)} >= BINDABLE | CONTROLS  # noqa: S101 -- the two lists name fields


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
