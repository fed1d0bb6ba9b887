"""HTTP's words for a cache: `Cache-Control` of a request (RFC 9111), and what a response says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..types import CacheStatus, Hit, Miss
from .bodies import AGE_MAX_S

_DIRECTIVE = re.compile(r"\s*([\w-]+)(?:\s*=\s*(?:\"([^\"]*)\"|([^\s,]*)))?\s*(?:,|$)")


def controls_of(cache_control: str | None) -> dict[str, Any]:
    """Return the controls that a `Cache-Control` header asks for.

    `no-cache`, `no-store`, `only-if-cached` and `max-age` are honoured, further directives are
    ignored. A `max-age` that is no number asks for nothing old (RFC 9111, section 4.2.1).
    """
    asked = {m[1].lower(): m[2] or m[3] or "" for m in _DIRECTIVE.finditer(cache_control or "")}
    found: dict[str, Any] = {
        name.replace("-", "_"): True
        for name in ("no-cache", "no-store", "only-if-cached")
        if name in asked
    }
    if "max-age" in asked:
        found["max_age_s"] = _seconds(asked["max-age"])
    return found


def _seconds(text: str) -> float:
    return float(min(int(text[:12]), AGE_MAX_S)) if text.isascii() and text.isdigit() else 0.0


def headers_of(status: CacheStatus, request_id: str) -> Mapping[str, str]:
    """Return what a response says of the cache: no similarity, which a caller must not see."""
    age = {} if status.hit is None or status.age_s is None else {"Age": str(int(status.age_s))}
    return {"Cache-Status": str(status), "X-Request-Id": request_id, **age}


def early_status(found: Hit | Miss | None, *, now: datetime) -> CacheStatus:
    """Return what is known of the cache when a stream begins; None for one that looked nowhere."""
    match found:
        case Hit():
            left = (found.entry.expire_at - now).total_seconds()
            age = (now - found.entry.created_at).total_seconds()
            return CacheStatus(hit=found.kind, ttl_s=max(0.0, left), age_s=max(0.0, age))
        case Miss():
            return CacheStatus(fwd=found.fwd, reason=found.reason)
        case None:
            return CacheStatus(fwd="bypass")
