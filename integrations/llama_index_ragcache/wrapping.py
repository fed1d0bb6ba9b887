"""The one line: the user's own LLM, of a class of its own that asks the cache first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from llama_index.core.llms import LLM
from pydantic import PrivateAttr

from ragcache.binding import Identity, Options
from ragcache.errors import ConfigError
from ragcache.layout.markers import Mode
from ragcache.portal import AnyCache, Doors
from ragcache.types import JsonObject

from .asking import Asked, params_of, settings_of
from .capture import install
from .doors import Bound, RagCacheDoors
from .forms import Form, Prompt
from .inner import CalledTarget, InnerTarget, Invocation, ThreadedInnerTarget
from .providers import identity_of, model_name_of, provider_of
from .wire import Wire

L = TypeVar("L", bound=LLM)
#: Where pydantic keeps the state of a model.
_STATE = (
    "__dict__",
    "__pydantic_fields_set__",
    "__pydantic_extra__",
    "__pydantic_private__",
)


def wrap(
    llm: L,
    cache: AnyCache,
    *,
    tenant: str | None = None,
    principal: str | None = None,
    provider: str | None = None,
    markers: Mode = "planned",
    marker_ttl_s: int | None = None,
    **request: Any,
) -> L:
    """Return the same LLM, with ragcache in front of its calls.

        Settings.llm = wrap(OpenAI(...), cache, tenant="acme")

    It is a copy of a class derived from the LLM's own: tools, structured output, metadata and
    `isinstance` stay as they are. Retrieved nodes are seen without further edits: `install()` is
    called here.

    Args:
        llm: An LLM. One that is wrapped already is bound anew.
        cache: `ragcache.connect(...)`, or a cache opened with `async with` on the running loop.
        tenant: Whose requests these are; else each call says it, inside
            `instrument_tags({"tenant_id": ...})`. Bind it here where streams are read later.
        principal: Who asks inside the tenant.
        provider: Which provider's cache fields may be sent: "openai", "vllm", "anthropic".
        markers: When cache markers are set for a provider that needs them: "planned" where they
            are expected to pay, "always" also behind the last document, "off" never.
        marker_ttl_s: Their lifetime in seconds; None is the provider's shortest.
        request: Further fields of every request: sharing, access, namespace, version, ttl_s, ...

    Raises:
        ConfigError: The LLM or the cache is none.
        RequestError: A field of every request is unknown.
    """
    if not isinstance(llm, LLM):
        raise ConfigError(f"a {type(llm).__name__} is no LLM of LlamaIndex: wrap the LLM itself")
    options = Options(
        identity=Identity(tenant=tenant, principal=principal), provider=provider, request=request
    )
    bound = Bound(Doors(cache), options, markers=markers, marker_ttl_s=marker_ttl_s)
    install()
    copy: Any = llm.model_copy()
    if not isinstance(llm, RagCacheDoors):
        copy.__class__ = _wrapped_class(type(llm))
    if copy.__pydantic_private__ is None:
        object.__setattr__(copy, "__pydantic_private__", {})
    copy._ragcache = bound  # noqa: SLF001 -- of the class made here
    wrapped: L = copy
    return wrapped


@lru_cache(maxsize=256)
def _wrapped_class(kind: type[LLM]) -> type[LLM]:
    names = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__annotations__": {"_ragcache": Any},
        "_ragcache": PrivateAttr(default=None),
    }
    metaclass: Any = type(kind)
    made: type[LLM] = metaclass(kind.__name__, (WrappedDoors, kind), names)
    return made


class WrappedDoors(RagCacheDoors):
    """The doors of an LLM of the user's own."""

    def _ragcache_bare(self) -> Any:
        """Return the LLM as its own class: two faces of one state, so that a changed setting or
        callback manager counts for both.
        """
        face: Any = object.__new__(type(self).__bases__[1])
        for name in _STATE:
            object.__setattr__(face, name, getattr(self, name))
        return face

    def _ragcache_params(
        self, kwargs: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Sequence[JsonObject]]:
        return params_of(settings_of(self), kwargs), ()

    def _ragcache_target(
        self, form: Form, prompt: Prompt, asked: Asked, kwargs: dict[str, Any], *, threaded: bool
    ) -> CalledTarget:
        provider = self._ragcache.options.provider
        bare = self._ragcache_bare()
        invocation = Invocation(
            llm=bare,
            form=form,
            wire=Wire(
                llm=bare,
                prompt=prompt,
                formatted=asked.formatted,
                tenant=asked.request.tenant,
                sent=self._ragcache.sent,
                takes_markers=(provider or provider_of(bare)) == "anthropic",
                markers=self._ragcache.markers,
                marker_ttl_s=self._ragcache.marker_ttl_s,
            ),
            provider=provider,
            kwargs=kwargs,
        )
        kind = ThreadedInnerTarget if threaded else InnerTarget
        return kind(
            invocation,
            provider=provider or provider_of(bare),
            name=identity_of(bare),
            model=str(kwargs.get("model") or model_name_of(bare)),
        )
