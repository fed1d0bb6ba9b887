"""What a chat model tells of itself: provider, address, name; and what may be sent to it."""

from __future__ import annotations

import functools
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from pydantic import BaseModel

from ragcache.types import Call

_NAMES = ("model_name", "model", "model_id", "deployment_name")
_ADDRESSES = ("openai_api_base", "anthropic_api_url", "azure_endpoint", "base_url", "endpoint")


def model_name_of(model: BaseChatModel) -> str:
    """Return the model's name as its provider knows it, "" where it does not say."""
    names = (_said(model, name) for name in _NAMES)
    return next((name for name in names if isinstance(name, str) and name), "")


def base_url_of(model: BaseChatModel) -> str:
    """Return where the model is asked, "" where it does not say."""
    addresses = (_said(model, name) for name in _ADDRESSES)
    found = next((a for a in addresses if isinstance(a, str) and a), None)
    client = _said(model, "root_client")
    return found or str(getattr(client, "base_url", None) or "")


def _said(model: BaseChatModel, name: str) -> Any:
    """Return an attribute, None where there is none; a pydantic object is slow to say so."""
    known = name in vars(model) or _may_have(type(model), name)
    return getattr(model, name, None) if known else None


@functools.lru_cache(maxsize=1024)
def _may_have(kind: type[BaseModel], name: str) -> bool:
    answers_any = getattr(kind, "__getattr__", None) is not getattr(BaseModel, "__getattr__", None)
    open_ended = answers_any or kind.model_config.get("extra") == "allow"
    return open_ended or name in kind.model_fields or hasattr(kind, name)


def identity_of(model: BaseChatModel) -> str:
    """Return a name for keys: the kind of model, and where it is asked."""
    kind = type(model)
    return f"{kind.__module__}.{kind.__qualname__}@{base_url_of(model)}"


def provider_of(model: BaseChatModel) -> str:
    """Return the provider whose rules hold for a model; "generic" where it is not known."""
    kind = model._llm_type
    if kind.startswith("anthropic"):
        return "anthropic"
    address = base_url_of(model)
    if kind == "openai-chat" and (not address or "//api.openai.com" in address):
        return "openai"
    return "generic"


def with_fields(
    model: BaseChatModel, provider: str | None, call: Call, given: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call with the cache fields that its provider is said to take.

    Only where `wrap(..., provider=...)` says so: a strict host refuses unknown fields. The salt
    goes over whatever the caller put there, since it keeps tenants apart.
    """
    if provider == "vllm" and call.cache_salt and hasattr(model, "extra_body"):
        body = {**(model.extra_body or {}), **(given.get("extra_body") or {})}
        return {**given, "extra_body": {**body, "cache_salt": call.cache_salt}}
    if provider == "openai" and call.prompt_cache_key:
        return {"prompt_cache_key": call.prompt_cache_key, **given}
    return given
