"""A chat model in front of another one: prompts laid out for reuse, answers cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field, PrivateAttr

from ragcache.binding import BINDABLE, Identity, Options
from ragcache.errors import ConfigError
from ragcache.portal import AnyCache
from ragcache.protocols import Target

from .cached import Binding, CachedDoors
from .inner import Inner
from .markers import Mode
from .providers import model_name_of
from .target_model import TargetChatModel


class RagCacheChatModel(CachedDoors, BaseChatModel):
    """Any chat model, with ragcache in front.

    Everything else is the inner model's: tools, structured output, usage, metadata, profile.

        llm = RagCacheChatModel(cache=ragcache.connect(settings), inner=ChatOpenAI(...),
                                tenant="acme")

    Args:
        cache: `ragcache.connect(...)`, or a cache opened with `async with` on the running loop.
        inner: The model that answers a miss.
        target: Instead of a model: one of ragcache's own targets, a server or an engine in this
            process, which lives on the cache's loop.
        tenant: Whose requests these are. Without one, the tenant is looked for in each call's
            metadata or configurable (`tenant_id`); where there is none the answer cache is off.
        principal: Who asks inside the tenant.
        provider: Which provider's cache fields may be sent: "openai", "vllm", "anthropic".
        markers: When cache markers are set for a provider that needs them: "planned" where they
            pay, "always" behind the last block too, "off".
        marker_ttl_s: Their lifetime in seconds; None is the provider's shortest.
        fields: Further fields of every request (sharing, access, namespace, version, ttl_s, ...),
            and settings of the inner model (streaming, temperature, ...), which a copy gets.

    Raises:
        ConfigError: The cache is none, or a field belongs neither to requests nor to the model.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseChatModel = Field(description="The model that answers a miss.")

    _bound: Binding = PrivateAttr()

    def __init__(
        self,
        *,
        cache: AnyCache,
        inner: BaseChatModel | None = None,
        target: Target | None = None,
        tenant: str | None = None,
        principal: str | None = None,
        provider: str | None = None,
        markers: Mode = "planned",
        marker_ttl_s: int | None = None,
        **fields: Any,
    ) -> None:
        settings = {name: value for name, value in fields.items() if name not in BINDABLE}
        request = {name: value for name, value in fields.items() if name in BINDABLE}
        inner = _set(_model(inner, target), settings)
        provider = provider or (target.provider if target is not None else None)
        identity = Identity(tenant=tenant, principal=principal)
        options = Options(identity=identity, provider=provider, request=request)
        binding = Binding(cache, options, markers=markers, marker_ttl_s=marker_ttl_s)
        super().__init__(**{"inner": inner, **_inherited(inner)})
        self._bound = binding

    @classmethod
    def bound(cls, model: BaseChatModel, binding: Binding) -> RagCacheChatModel:
        """Return a cache that is bound already in front of a model."""
        made = cls.model_construct(inner=model, **_inherited(model))
        made._bound = binding
        return made

    def around(self, model: BaseChatModel) -> RagCacheChatModel:
        """Return the same cache in front of another model."""
        return self.bound(model, self._bound)

    def _inner(self) -> Inner:
        return Inner.of(
            self.inner,
            rate_limiter=self.inner.rate_limiter,
            lives_with_cache=isinstance(self.inner, TargetChatModel),
        )

    def _binding(self) -> Binding:
        return self._bound

    # --- what LangChain asks a model for -------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return self.inner._llm_type

    @property
    def model_name(self) -> str:
        """The inner model's name."""
        return model_name_of(self.inner)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return dict(self.inner._identifying_params)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self.inner._get_ls_params(stop=stop, **kwargs)

    def _get_invocation_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        return self.inner._get_invocation_params(stop=stop, **kwargs)

    def _combine_llm_outputs(self, llm_outputs: list[dict[str, Any] | None], /) -> dict[str, Any]:
        return self.inner._combine_llm_outputs(llm_outputs)

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """Keep LangChain's own cache from mixing answers of the wrapped and the bare model."""
        return "ragcache/" + self.inner._get_llm_string(stop=stop, **kwargs)

    def _should_stream(
        self,
        *,
        async_api: bool,
        run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> bool:
        """Stream where the inner model would: having `_stream` here says nothing about it."""
        awaited = async_api or isinstance(self.inner, TargetChatModel)
        return self.inner._should_stream(async_api=awaited, run_manager=run_manager, **kwargs)

    def _should_use_protocol_streaming(self, **kwargs: Any) -> bool:
        """Stream events where the inner model would, and can be asked for pieces."""
        return self.inner._should_use_protocol_streaming(**kwargs) and (
            type(self.inner)._stream is not BaseChatModel._stream
            or type(self.inner)._astream is not BaseChatModel._astream
        )

    def get_num_tokens(self, text: str) -> int:
        """Return what the inner model counts."""
        return self.inner.get_num_tokens(text)

    def get_token_ids(self, text: str) -> list[int]:
        """Return what the inner model counts."""
        return self.inner.get_token_ids(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None, **kwargs: Any
    ) -> int:
        """Return what the inner model counts."""
        return self.inner.get_num_tokens_from_messages(messages, tools, **kwargs)

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return that a live cache cannot be written down."""
        return False

    # The annotation `Runnable` matters: RunnableWithFallbacks passes a method on to its fallbacks
    # only where the annotation says that it returns one.
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as the inner model does, with the cache kept in front."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self._rewrapped(self.inner.bind_tools(tools, **kwargs))

    def with_structured_output(
        self, schema: dict[str, Any] | type, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Return structured output as the inner model does, with the cache kept in front."""
        return self._rewrapped(self.inner.with_structured_output(schema, **kwargs))

    def _rewrapped(self, runnable: Runnable[Any, Any]) -> Runnable[Any, Any]:
        from .wrapping import replace_models

        return replace_models(runnable, self.around)[0]


def _model(inner: BaseChatModel | None, target: Target | None) -> BaseChatModel:
    if inner is not None and target is None:
        return inner
    if inner is None and target is not None:
        return TargetChatModel(target=target)
    raise ConfigError("pass either inner=, a chat model, or target=, a ragcache target")


def _set(inner: BaseChatModel, settings: dict[str, Any]) -> BaseChatModel:
    """Return the model, or a copy with other settings."""
    known = set(type(inner).model_fields)
    if unknown := sorted(set(settings) - known):
        raise ConfigError(
            f"{', '.join(unknown)}: neither a setting of {type(inner).__name__} nor a field of "
            f"every request ({', '.join(sorted(BINDABLE))})"
        )
    return inner.model_copy(update=settings) if settings else inner


def _inherited(inner: BaseChatModel) -> dict[str, Any]:
    """Return the settings that LangChain reads from the outer model."""
    return {
        "cache": inner.cache,
        "output_version": inner.output_version,
        "disable_streaming": inner.disable_streaming,
        "verbose": inner.verbose,
        "callbacks": inner.callbacks,
        "tags": inner.tags,
        "metadata": inner.metadata,
        "name": inner.name,
        "profile": inner.profile,
    }
