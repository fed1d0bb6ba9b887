"""What an LLM tells of itself: provider, address, name; and what may be sent to it."""

from __future__ import annotations

from typing import Any

from ragcache.types import Call

_NAMES = ("model", "model_name", "model_id", "deployment_name", "engine")
_ADDRESSES = ("api_base", "base_url", "azure_endpoint", "endpoint", "api_url")


def model_name_of(llm: Any) -> str:
    """Return the model's name as its provider knows it, "" where it does not say."""
    names = (getattr(llm, name, None) for name in _NAMES)
    return next((name for name in names if isinstance(name, str) and name), "")


def base_url_of(llm: Any) -> str:
    """Return where the model is asked, "" where it does not say."""
    addresses = (getattr(llm, name, None) for name in _ADDRESSES)
    return next((a for a in addresses if isinstance(a, str) and a), "")


def identity_of(llm: Any) -> str:
    """Return a name for keys: the kind of model, and where it is asked."""
    kind = type(llm)
    return f"{kind.__module__}.{kind.__qualname__}@{base_url_of(llm)}"


def provider_of(llm: Any) -> str:
    """Return the provider whose rules hold for a model; "generic" where it is not known."""
    kind = type(llm).class_name()
    if "anthropic" in kind.lower():
        return "anthropic"
    if kind == "openai_llm" and "//api.openai.com" in base_url_of(llm):
        return "openai"
    return "generic"


def with_fields(
    llm: Any, provider: str | None, call: Call, given: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call with the cache fields that its provider is said to take.

    Only where `wrap(..., provider=...)` says so: a strict host refuses unknown fields. The salt
    goes over whatever the caller put there, since it keeps tenants apart.
    """
    if provider == "vllm" and call.cache_salt:
        bound = (getattr(llm, "additional_kwargs", None) or {}).get("extra_body") or {}
        body = {**bound, **(given.get("extra_body") or {})}
        return {**given, "extra_body": {**body, "cache_salt": call.cache_salt}}
    if provider == "openai" and call.prompt_cache_key:
        return {"prompt_cache_key": call.prompt_cache_key, **given}
    return given
