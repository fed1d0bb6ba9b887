"""The faults of a server behind the official client: told with its own type and status.

A call is repeated only where the server cannot have answered it: the connection was never made,
or the server said that it is too busy. A call that timed out or broke off may have been computed,
and billed; it is not repeated.
"""

from __future__ import annotations

import contextlib
import email.utils
import importlib
import time
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from ..errors import TargetError

#: Too many requests, service unavailable, and Anthropic's "overloaded".
_BUSY = frozenset({429, 503, 529})
#: Types of error that say 429 and mean that no money is left: trying again changes nothing.
_HOPELESS = frozenset({"insufficient_quota", "billing_hard_limit_reached"})


def pause_before_retry(error: BaseException, *, longest_s: float) -> bool | float:
    """Return whether a call may safely be made again, and after how many seconds if it was said.

    False where the server asks for more patience than `longest_s`.
    """
    if _never_connected(error.__cause__ or error):
        return True
    status = getattr(error, "status_code", None)
    if status not in _BUSY or _HOPELESS & {getattr(error, "type", ""), getattr(error, "code", "")}:
        return False
    asked_s = retry_after_s(getattr(getattr(error, "response", None), "headers", {}))
    if asked_s is None:
        return True
    return asked_s if 0 < asked_s <= longest_s else asked_s == 0


def _never_connected(fault: BaseException) -> bool:
    origin = _behind(fault)
    if origin is not None:
        import aiohttp

        return isinstance(origin, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    transport = _transport()
    return isinstance(fault, (transport.ConnectError, transport.ConnectTimeout))


def _timed_out(fault: BaseException) -> bool:
    origin = _behind(fault)
    return isinstance(origin or fault, (TimeoutError, _transport().TimeoutException))


def _behind(fault: BaseException) -> BaseException | None:
    """Return the error of aiohttp's that stands behind one of the client's: the client calls
    whatever befalls a connection of aiohttp's a timeout of connecting.
    """
    origin = fault.__cause__
    return origin if type(origin).__module__.partition(".")[0] == "aiohttp" else None


def is_repeatable(error: TargetError) -> bool:
    """Return whether another server may be asked what this one could not answer."""
    cause = error.__cause__
    return cause is not None and pause_before_retry(cause, longest_s=float("inf")) is not False


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long a server asks to wait, in seconds (RFC 9110, 10.2.3), None where it is
    silent.
    """
    told = headers.get("retry-after")
    if told is None:
        return None
    try:
        return max(0.0, float(told))
    except ValueError:
        pass  # no number, then it is a date
    date = email.utils.parsedate_tz(told)
    return None if date is None else max(0.0, email.utils.mktime_tz(date) - time.time())


@cache
def _transport() -> Any:
    """Return the HTTP library of the client: `httpx` for openai 2, `httpx2` for openai 3."""
    import openai

    return importlib.import_module(openai.Timeout.__init__.__module__.partition(".")[0])


@contextlib.contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn the errors of the client into TargetError, the server's own status and body kept."""
    import openai

    transport = _transport()
    try:
        yield
    except openai.APIStatusError as error:
        raise TargetError(
            f"{name} answered {error.status_code}: {error.message}",
            status=error.status_code,
            body=error.body,
            kind=_kind(error),
            retry_after_s=retry_after_s(error.response.headers),
        ) from error
    except (openai.APIConnectionError, transport.HTTPError) as error:
        raise _lost(name, error) from error
    except openai.APIError as error:
        raise TargetError(
            f"{name} failed: {error.message}", body=error.body, kind=_kind(error)
        ) from error


def _lost(name: str, error: Exception) -> TargetError:
    """Return what became of a connection. While a stream is read, the client lets the errors of its
    transport through.
    """
    import openai

    streaming = not isinstance(error, openai.APIConnectionError)
    fault = error if streaming else error.__cause__ or error
    if _timed_out(fault):
        return TargetError(f"{name} did not answer in time: raise api.timeout_s", kind="timeout")
    if streaming:
        return TargetError(f"{name} broke off: {error or type(error)}", kind="connection")
    return TargetError(
        f"{name} cannot be reached ({fault}): check api.base_url and that the server runs",
        kind="connection",
    )


def _kind(error: Any) -> str:
    """Return the server's own word for an error: its type, else its code."""
    body = error.body if isinstance(error.body, Mapping) else {}
    nested = body.get("error")
    inner = nested if isinstance(nested, Mapping) else body
    return str(inner.get("type") or inner.get("code") or error.type or "")
