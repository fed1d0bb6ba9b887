"""Every way in which a request fails, with its status and an error body in OpenAI's shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..errors import NotCachedError, RagCacheError, RequestError, TargetError
from ..types import CacheStatus

#: The upstream refused the gateway's own credential: its words may quote a part of that.
_OWN_CREDENTIAL = frozenset({401, 403, 407})


class Fault(RagCacheError):  # noqa: N818 -- most of them are the caller's, or the upstream's
    """A request is answered with an error.

    Args:
        status: Of the HTTP response.
        message: What happened, which part, and what to do.
        code: One word for programs.
        kind: OpenAI's `type`.
        param: The member of the body that is wrong.
        headers: Further ones of the response.
        body: An error body to send as it is, in place of one made of the above.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})
        self.body = body or {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }


def unauthenticated(message: str, code: str = "invalid_api_key") -> Fault:
    """Return the fault of a missing or wrong credential (RFC 6750, section 3)."""
    return Fault(
        401,
        message,
        code=code,
        kind="authentication_error",
        headers={"WWW-Authenticate": 'Bearer realm="ragcache"'},
    )


def malformed(message: str, param: str | None = None, code: str = "invalid_body") -> Fault:
    """Return the fault of a body that cannot be read."""
    return Fault(400, message, code=code, param=param)


def busy(status: int, message: str, *, code: str, retry_after_s: float = 1.0) -> Fault:
    """Return the fault of a server or tenant with too much under way."""
    return Fault(
        status, message, code=code, kind="rate_limit_error", headers=_retry_after(retry_after_s)
    )


def out_of_time(limit_s: float) -> Fault:
    """Return the fault of an answer that took too long."""
    return Fault(
        504,
        f"no whole answer within {limit_s:g} s: ask for a shorter one, or raise "
        "gateway.answer_timeout_s",
        code="timeout",
        kind="timeout_error",
    )


def fault_of(error: Exception) -> Fault:
    """Return how an error of the pipeline is told over HTTP."""
    match error:
        case Fault():
            return error
        case NotCachedError():
            return _not_cached(error)
        case RequestError():
            return malformed(str(error), code="invalid_request")
        case TargetError():
            return _of_target(error)
        case _:
            return Fault(
                500, "the gateway failed: its log tells why", code="internal", kind="server_error"
            )


def _not_cached(error: NotCachedError) -> Fault:
    status = CacheStatus(fwd="miss", reason="only_if_cached")
    return Fault(
        504,
        str(error),
        code="not_cached",
        kind="cache_error",
        headers={"Cache-Status": str(status)},
    )


def _of_target(error: TargetError) -> Fault:
    headers = {} if error.retry_after_s is None else _retry_after(error.retry_after_s)
    if error.status is None or not 400 <= error.status <= 599:
        status = 504 if error.kind == "timeout" else 502
        message = _WITHOUT_STATUS.get(error.kind, "the upstream gave no answer that can be read")
        return Fault(status, message, code=error.kind or "bad_gateway", kind="upstream_error")
    body = _body_of(error)
    if error.status in _OWN_CREDENTIAL:
        body["error"]["message"] = (
            "the upstream refused the gateway's own credential: the operator checks api.api_key"
        )
    return Fault(
        error.status, str(error), code="upstream", kind="upstream_error", headers=headers, body=body
    )


#: An address of the upstream is the operator's: it stays in the log.
_WITHOUT_STATUS = {
    "timeout": "the upstream did not answer in time",
    "connection": "the upstream cannot be reached, or broke off",
}


def _body_of(error: TargetError) -> dict[str, Any]:
    """Return the upstream's own error body; the official client hands on what `error` held."""
    told = error.body
    inner = told.get("error", told) if isinstance(told, Mapping) else None
    if isinstance(inner, Mapping) and inner:
        return {"error": dict(inner)}
    message = str(told) if isinstance(told, str) and told else "the upstream answered with an error"
    kind = error.kind or "upstream_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": str(error.status)}}


def _retry_after(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}
