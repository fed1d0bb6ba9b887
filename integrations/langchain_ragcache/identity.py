"""Whose request it is: one resolver for every place where LangChain may carry a tenant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config

from ragcache.binding import PRINCIPAL_NAMES, TENANT_NAMES, Identity, identify

#: LangGraph keeps the runtime of a node here.
_RUNTIME = "__pregel_runtime"


def resolve(
    bound: Identity,
    *,
    metadata: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    context: Any = None,
) -> Identity:
    """Return who asks: as bound, else by runtime context, metadata, configurable, tags.

    Args:
        bound: What `wrap(..., tenant=..., principal=...)` was given.
        metadata: Metadata of the run.
        tags: Tags of the run; `tenant:acme` counts.
        context: A LangGraph runtime context.

    Raises:
        RequestError: Two places name different tenants or principals.
    """
    places = dict(_places(metadata, tags, context))
    return identify(bound, places)


def _places(
    metadata: Mapping[str, Any] | None, tags: Sequence[str], context: Any
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    configurable = (var_child_runnable_config.get() or {}).get("configurable") or {}
    runtime = getattr(configurable.get(_RUNTIME), "context", None)
    yield "runtime context", _mapping(context if context is not None else runtime)
    yield "metadata", metadata or {}
    yield "configurable", configurable
    yield "tags", dict(tag.split(":", 1) for tag in tags if ":" in tag)


def _mapping(context: Any) -> Mapping[str, Any]:
    if context is None or isinstance(context, Mapping):
        return context or {}
    return {name: getattr(context, name, None) for name in (*TENANT_NAMES, *PRINCIPAL_NAMES)}


def with_identity(config: RunnableConfig | None) -> RunnableConfig | None:
    """Return the config with tenant and principal of `configurable` copied to `metadata`.

    Metadata reaches a model that is called directly, configurable only one inside a chain.
    """
    configurable = (config or {}).get("configurable") or {}
    found = {n: configurable[n] for n in (*TENANT_NAMES, *PRINCIPAL_NAMES) if configurable.get(n)}
    if config is None or not found:
        return config
    return {**config, "metadata": {**found, **(config.get("metadata") or {})}}


__all__ = ["Identity", "resolve", "with_identity"]
