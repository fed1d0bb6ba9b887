"""The ASGI application: its routes, and the cache that lives as long as it runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..errors import ConfigError, StoreError
from ..events import Hooks
from ..factory import RagCache, prompt_target_from
from ..protocols import Store
from ..settings import GatewaySettings, Settings
from ..types import TenantId
from .asking import Terms
from .credentials import Credentials, StaticKeys, Verifier
from .doors import Bounds, Door, Gateway, note_lookup
from .faults import Fault, fault_of
from .limits import Slots
from .metrics import metrics_response
from .openapi import document
from .tokens import Claims, SignedTokens

#: Where a worker process finds its settings file.
CONFIG_ENV = "RAGCACHE_GATEWAY_CONFIG"
_PROBE_S = 0.25


def from_environment() -> Starlette:
    """Return the application of a worker process. Raises ConfigError."""
    # What is loaded by now stays: the collector need not look at it again during requests.
    gc.collect()
    gc.freeze()
    return create_app(Settings.load(os.environ.get(CONFIG_ENV) or None))


def create_app(settings: Settings) -> Starlette:
    """Return the application.

    Unless the settings say otherwise, answers to requests without documents are stored as well
    (only equal requests are served them), and aiohttp carries the requests upstream.

    Raises:
        ConfigError: No model, no credentials, or one of their files is wrong.
    """
    gateway = gateway_from(settings)
    admission = {"require_documents": False, **settings.admission}
    api = settings.api
    if "transport" not in api.model_fields_set:
        api = api.model_copy(update={"transport": "aiohttp"})
    settings = settings.model_copy(update={"admission": admission, "api": api})
    routes = [
        Route("/v1/chat/completions", Door(gateway=gateway, kind="chat"), methods=["POST"]),
        Route("/v1/completions", Door(gateway=gateway, kind="text"), methods=["POST"]),
        Route("/v1/models", _Models(gateway).all, methods=["GET"]),
        Route("/v1/models/{model:path}", _Models(gateway).one, methods=["GET"]),
        Route("/healthz", _alive, methods=["GET"]),
        Route("/readyz", _Readiness(gateway).look, methods=["GET"]),
        Route("/metrics", metrics_response(settings.gateway.metrics_key), methods=["GET"]),
        Route("/openapi.json", _openapi, methods=["GET"]),
    ]
    return Starlette(
        routes=routes,
        lifespan=_lifespan(settings, gateway),
        exception_handlers={HTTPException: _http_error, Fault: _fault_error},
    )


def gateway_from(settings: Settings) -> Gateway:
    """Return what the doors share, without a cache yet. Raises ConfigError."""
    given = settings.gateway
    if not settings.model.name:
        raise ConfigError("the gateway needs model.name: which model is asked upstream?")
    return Gateway(
        credentials=Credentials(verifiers=_verifiers(given)),
        terms=Terms(
            models=tuple(dict.fromkeys((settings.model.name, *given.models))),
            sharing=given.sharing,
            system="\n\n".join(settings.prompt.stable_prefix),
        ),
        slots=Slots(total=given.concurrency, by_tenant=given.tenant_concurrency),
        bounds=Bounds(
            max_body_bytes=given.max_body_bytes,
            body_timeout_s=given.body_timeout_s,
            answer_timeout_s=given.answer_timeout_s,
        ),
    )


def _verifiers(given: GatewaySettings) -> list[Verifier]:
    found: list[Verifier] = []
    if given.keys_file is not None:
        found.append(StaticKeys(given.keys_file))
    if given.jwks_file is not None:
        claims = Claims(
            tenant=given.tenant_claim, principal=given.principal_claim, access=given.access_claim
        )
        found.append(
            SignedTokens(
                given.jwks_file,
                issuer=given.jwt_issuer,
                audience=given.jwt_audience,
                algorithms=given.jwt_algorithms,
                claims=claims,
            )
        )
    if not found:
        raise ConfigError(
            "the gateway needs credentials, which say whose a request is: set gateway.keys_file "
            "(ragcache serve --keys FILE), gateway.jwks_file, or both"
        )
    return found


def _lifespan(
    settings: Settings, gateway: Gateway
) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        prompts = prompt_target_from(settings)
        try:
            async with RagCache.open(settings, hooks=Hooks(note_lookup)) as cache:
                gateway.cache, gateway.prompts = cache, prompts
                yield
                gateway.cache = None
        finally:
            await prompts.close()

    return running


# --- small doors -------------------------------------------------------------------------------


class _Models:
    """`/v1/models`: those that may be asked here."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def all(self, request: Request) -> Response:
        self._gateway.credentials.caller(request.headers.get("authorization"))
        data = [_model(name) for name in self._gateway.terms.models]
        return JSONResponse({"object": "list", "data": data})

    async def one(self, request: Request) -> Response:
        self._gateway.credentials.caller(request.headers.get("authorization"))
        name = request.path_params["model"]
        if name not in self._gateway.terms.models:
            raise Fault(404, f"the model {name!r} is not offered here", code="model_not_found")
        return JSONResponse(_model(name))


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "ragcache"}


async def _alive(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


class _Readiness:
    """`/readyz`: whether requests are answered, and whether the store is there to help.

    A store that is away makes misses, no errors: the gateway stays ready then.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def look(self, _: Request) -> Response:
        cache = self._gateway.cache
        if cache is None:
            return JSONResponse({"status": "starting"}, status_code=503)
        store = "none" if cache.store is None else await _state_of(cache.store)
        return JSONResponse({"status": "ready", "store": store})


async def _state_of(store: Store) -> str:
    probe = asyncio.ensure_future(
        store.recall(TenantId("ragcache"), "probe", "readyz", now=datetime.now(UTC))
    )
    done, _ = await asyncio.wait({probe}, timeout=_PROBE_S)
    if not done:
        probe.cancel()
        return "slow"
    error = probe.exception()
    if error is not None and not isinstance(error, StoreError):
        raise error
    return "ok" if error is None else "away"


async def _openapi(_: Request) -> Response:
    return JSONResponse(document())


async def _http_error(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    told = {404: "there is nothing at this address", 405: "this address takes another method"}
    message = told.get(status, str(error))
    headers = dict(getattr(error, "headers", None) or {})
    return _response(Fault(status, message, code=_CODES.get(status, "http"), headers=headers))


async def _fault_error(_: Request, error: Exception) -> Response:
    return _response(fault_of(error))


def _response(fault: Fault) -> Response:
    return JSONResponse(fault.body, status_code=fault.status, headers=fault.headers)


_CODES = {404: "not_found", 405: "method_not_allowed"}
