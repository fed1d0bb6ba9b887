"""The one line: a model, or a whole chain with models in it, with ragcache in front."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import (
    Runnable,
    RunnableBranch,
    RunnableParallel,
    RunnableSequence,
    RunnableWithFallbacks,
)
from langchain_core.runnables.base import RunnableBindingBase, RunnableEachBase
from langchain_core.runnables.configurable import (
    RunnableConfigurableAlternatives,
    RunnableConfigurableFields,
)
from langchain_core.runnables.passthrough import RunnableAssign
from langchain_core.runnables.router import RouterRunnable

from ragcache.binding import Identity, Options
from ragcache.errors import ConfigError
from ragcache.portal import AnyCache

from .cached import Binding, CachedDoors
from .chat_model import RagCacheChatModel
from .markers import Mode
from .same_class import same_class

R = TypeVar("R", bound=Runnable[Any, Any])
Swap = Callable[[BaseChatModel], BaseChatModel]


def wrap(
    runnable: R,
    cache: AnyCache,
    *,
    tenant: str | None = None,
    principal: str | None = None,
    provider: str | None = None,
    markers: Mode = "planned",
    marker_ttl_s: int | None = None,
    keep_class: bool = False,
    **request: Any,
) -> R:
    """Return the same model or chain, with ragcache in front of every chat model in it.

        llm = wrap(ChatOpenAI(...), cache, tenant="acme")
        chain = wrap({"context": retriever | join, "question": ...} | prompt | llm, cache,
                     tenant="acme")

    Retrieved documents are seen without further edits: `install()` is called here.

    Args:
        runnable: A chat model, a bound one, one with fallbacks or retries, or a whole chain.
        cache: `ragcache.connect(...)`, or a cache opened with `async with` on the running loop.
        tenant: Whose requests these are; else each call says it (`tenant_id` in metadata).
        principal: Who asks inside the tenant.
        provider: Which provider's cache fields may be sent: "openai", "vllm", "anthropic".
        markers: When cache markers are set for a provider that needs them: "planned" where they
            pay, "always" behind the last block too, "off".
        marker_ttl_s: Their lifetime in seconds; None is the provider's shortest.
        keep_class: Wrapped models stay instances of their own class, for code that asks with
            `isinstance`; else they are `RagCacheChatModel`, around the model as it is.
        request: Further fields of every request: sharing, access, namespace, version, ttl_s, ...

    Raises:
        ConfigError: No chat model was found: one inside a plain function or a graph node cannot
            be seen; wrap the model itself.
        RequestError: A field of every request is unknown.
    """
    identity = Identity(tenant=tenant, principal=principal)
    options = Options(identity=identity, provider=provider, request=request)
    binding = Binding(cache, options, markers=markers, marker_ttl_s=marker_ttl_s)

    def swap(model: BaseChatModel) -> BaseChatModel:
        return (same_class if keep_class else RagCacheChatModel.bound)(model, binding)

    wrapped, count = replace_models(runnable, swap)
    if not count:
        raise ConfigError(
            f"no chat model found in {type(runnable).__name__}: a model inside a function, a graph "
            "or a text completion class cannot be seen; wrap the chat model itself"
        )
    return wrapped


def replace_models(runnable: R, swap: Swap) -> tuple[R, int]:
    """Return a copy with every chat model swapped, and how many there are.

    A model that is wrapped already stays and counts.
    """
    found: Any = runnable
    if isinstance(found, CachedDoors):
        return runnable, 1
    if isinstance(found, BaseChatModel):
        swapped: Any = swap(found)
        return swapped, 1
    changes: dict[str, Any] = {}
    count = 0
    for name, value in _parts(found).items():
        changes[name], inside = _replaced(value, swap)
        count += inside
    return (found.model_copy(update=changes), count) if count else (runnable, 0)


def _parts(runnable: Any) -> dict[str, Any]:
    """Return the fields of a runnable that hold other runnables."""
    match runnable:
        case RunnableBindingBase() | RunnableEachBase():
            names = ["bound"]
        case RunnableSequence():
            names = ["first", "middle", "last"]
        case RunnableParallel():
            names = ["steps__"]
        case RunnableWithFallbacks():
            names = ["runnable", "fallbacks"]
        case RunnableAssign():
            names = ["mapper"]
        case RunnableBranch():
            names = ["branches", "default"]
        case RouterRunnable():
            names = ["runnables"]
        case RunnableConfigurableAlternatives():
            names = ["default", "alternatives"]
        case RunnableConfigurableFields():
            names = ["default"]
        case _:
            names = []
    return {name: getattr(runnable, name) for name in names}


def _replaced(value: Any, swap: Swap) -> tuple[Any, int]:
    """Replace in a runnable, or in a list, tuple or dict of them."""
    if isinstance(value, Runnable):
        return replace_models(value, swap)
    if isinstance(value, Mapping):
        done = {key: _replaced(v, swap) for key, v in value.items()}
        return {key: new for key, (new, _) in done.items()}, sum(n for _, n in done.values())
    if isinstance(value, list | tuple):
        items = [_replaced(v, swap) for v in value]
        return type(value)(new for new, _ in items), sum(n for _, n in items)
    return value, 0
