"""What a chat model tells of itself: provider, address, name; and what may be sent to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel

from ragcache.types import Call

_NAMES = ("model_name", "model", "model_id", "deployment_name")
_ADDRESSES = ("openai_api_base", "anthropic_api_url", "azure_endpoint", "base_url", "endpoint")

Extra = Callable[[Call, dict[str, Any]], dict[str, Any]]


def model_name_of(model: BaseChatModel) -> str:
    """Return the model's name as its provider knows it, "" where it does not say."""
    names = (getattr(model, name, None) for name in _NAMES)
    return next((name for name in names if isinstance(name, str) and name), "")


def base_url_of(model: BaseChatModel) -> str:
    """Return where the model is asked, "" where it does not say."""
    addresses = (getattr(model, name, None) for name in _ADDRESSES)
    found = next((a for a in addresses if isinstance(a, str) and a), None)
    client = getattr(model, "root_client", None)
    return found or str(getattr(client, "base_url", None) or "")


def provider_of(model: BaseChatModel) -> str:
    """Return the provider whose rules hold for a model; "generic" where it is not known."""
    kind = model._llm_type  # noqa: SLF001 -- the name by which integrations tell themselves apart
    if kind.startswith("anthropic"):
        return "anthropic"
    address = base_url_of(model)
    if kind == "openai-chat" and (not address or "//api.openai.com" in address):
        return "openai"
    return "generic"


def extra_fields(model: BaseChatModel, provider: str | None) -> Extra:
    """Return what adds the cache fields of a provider to the arguments of a call."""
    if provider == "vllm" and hasattr(model, "extra_body"):
        return lambda call, given: _salted(model, call, given)
    if provider == "openai":
        return _keyed
    return lambda _, given: given


def _salted(model: BaseChatModel, call: Call, given: dict[str, Any]) -> dict[str, Any]:
    """Set the salt, over whatever the caller put there: it keeps tenants apart."""
    if not call.cache_salt:
        return given
    body = {**(getattr(model, "extra_body", None) or {}), **(given.get("extra_body") or {})}
    return {**given, "extra_body": {**body, "cache_salt": call.cache_salt}}


def _keyed(call: Call, given: dict[str, Any]) -> dict[str, Any]:
    if not call.prompt_cache_key:
        return given
    return {"prompt_cache_key": call.prompt_cache_key, **given}
