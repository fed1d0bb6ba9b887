"""The model that answers: an engine of our own on CPU, or a server that is already there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import httpx

from ..errors import ConfigError

#: Where a server is that is already there, its key, and optionally which of its models to ask.
BASE_URL, API_KEY, MODEL = "RAGCACHE_BASE_URL", "RAGCACHE_API_KEY", "RAGCACHE_MODEL__NAME"

# The small model seldom ends within the tokens it is given, and an answer that was cut short is
# never stored. So it is held to one short sentence, without the numbers it makes up (they are not
# in the documents, and admission refuses them); a larger model is only asked for one.
_ONE_SHORT_SENTENCE = MappingProxyType(
    {"structured_outputs": {"regex": r"[A-Z][A-Za-z_ ,'()-]{3,40}[a-z)]\."}}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How the model is reached.

    Args:
        base_url: Of the OpenAI-compatible API.
        api_key: Sent as bearer token; servers without keys ignore it.
        name: Of the model in the API.
        provider: "vllm" where it takes a cache salt, else None.
        body: Further fields of every request.
    """

    base_url: str
    api_key: str = field(repr=False)
    name: str
    provider: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


def own_model(base_url: str, name: str) -> Model:
    """Return the model of an engine that was started here."""
    return Model(
        base_url=base_url,
        api_key="unused",
        name=name,
        provider="vllm",
        body=_ONE_SHORT_SENTENCE,
    )


def named_model(environment: Mapping[str, str] = os.environ) -> Model | None:
    """Return the model of the server that the environment names; None where it names none.

    Raises:
        ConfigError: The server cannot be reached, refuses the key, or lists no model.
    """
    base_url = environment.get(BASE_URL, "").rstrip("/")
    if not base_url:
        return None
    key = environment.get(API_KEY) or "unused"
    listed = _models(base_url, key)
    name = environment.get(MODEL) or next(iter(listed), "")
    if not name:
        raise ConfigError(f"{BASE_URL}={base_url} lists no model: name one in {MODEL}")
    if listed and name not in listed:
        raise ConfigError(
            f"{BASE_URL}={base_url} has no model {name!r}; it has {', '.join(listed[:10])}"
        )
    return Model(base_url=base_url, api_key=key, name=name)


def _models(base_url: str, key: str) -> list[str]:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        reply = httpx.get(f"{base_url}/models", headers=headers, timeout=20)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(
            f"{BASE_URL}={base_url} cannot be reached ({error}): give the address of an "
            "OpenAI-compatible server up to and including /v1, or unset it to start an engine here"
        ) from error
    if reply.status_code in (401, 403):
        raise ConfigError(f"{BASE_URL}={base_url} refuses the key: set {API_KEY}")
    if not reply.is_success:
        raise ConfigError(
            f"{base_url}/models answers {reply.status_code}: {BASE_URL} must be the address of an "
            "OpenAI-compatible server up to and including /v1"
        )
    try:
        return [str(row["id"]) for row in reply.json()["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{base_url}/models does not answer like an OpenAI-compatible server ({error!r})"
        ) from error
