"""`/metrics`: the process's Prometheus metrics, of all worker processes where there are several."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import os
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import Response

from .faults import Fault, unauthenticated

#: Where worker processes keep what they count, for each of them to show all of it.
SHARED_ENV = "PROMETHEUS_MULTIPROC_DIR"
#: A proxy on this machine stands before a client that is elsewhere.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")


def metrics_response(key: SecretStr) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint; it opens to a key, or without one to this machine only.

    Counts of hits and similarities are an oracle in the hands of a tenant.
    """

    async def shown(request: Request) -> Response:
        _admit(request, key.get_secret_value())
        if find_spec("prometheus_client") is None:
            raise Fault(404, "metrics need the extra 'telemetry'", code="not_found")
        body, kind = await asyncio.to_thread(_exposition)
        return Response(body, headers={"Content-Type": kind})

    return shown


def _admit(request: Request, key: str) -> None:
    if not key:
        if not _is_local(request):
            raise Fault(
                403,
                "metrics are shown on this machine only: set gateway.metrics_key",
                code="forbidden",
                kind="permission_error",
            )
        return
    given = request.headers.get("authorization", "").encode()
    if not hmac.compare_digest(given, f"Bearer {key}".encode()):
        raise unauthenticated("this key does not open the metrics")


def _is_local(request: Request) -> bool:
    if request.client is None or any(name in request.headers for name in _FORWARDED):
        return False
    try:
        return ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _exposition() -> tuple[bytes, str]:
    from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = REGISTRY
    if os.environ.get(SHARED_ENV):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it carries no types
    return generate_latest(registry), CONTENT_TYPE_LATEST
