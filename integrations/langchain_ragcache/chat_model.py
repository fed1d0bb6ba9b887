"""A chat model in front of another one: prompts laid out for reuse, answers cached."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field, PrivateAttr

from ragcache.pipeline import Pipeline
from ragcache.portal import Bridge
from ragcache.types import Answer, Chunk

from .asking import Asked, ask
from .doors import AnyCache, Doors
from .identity import Identity, with_identity
from .inner import InnerTarget, Invocation, ThreadedInnerTarget
from .options import Options
from .providers import base_url_of, extra_fields, model_name_of, provider_of
from .replay import Replay
from .replies import result_of
from .run_tree import ModelRun, install, take_model_run

_log = logging.getLogger("ragcache")


class RagCacheChatModel(BaseChatModel):
    """Any chat model, with ragcache in front.

    Everything else is the inner model's: tools, structured output, usage, metadata, profile.

        llm = RagCacheChatModel(cache=ragcache.connect(settings), inner=ChatOpenAI(...),
                                tenant="acme")

    Args:
        cache: `ragcache.connect(...)`, or a cache opened with `async with` on the running loop.
        inner: The model that answers a miss.
        tenant: Whose requests these are. Without one, the tenant is looked for in each call's
            metadata or configurable (`tenant_id`); where there is none the answer cache is off.
        principal: Who asks inside the tenant.
        provider: Which provider's cache fields may be sent: "openai", "vllm", "anthropic".
        request: Further fields of every request: sharing, access, namespace, version, ttl_s, ...

    Raises:
        ConfigError: The cache is none.
        RequestError: A field of every request is unknown.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    inner: BaseChatModel = Field(description="The model that answers a miss.")

    _options: Options = PrivateAttr()
    _doors: Doors = PrivateAttr()
    _warned: set[str] = PrivateAttr(default_factory=set)

    def __init__(
        self,
        *,
        cache: AnyCache,
        inner: BaseChatModel,
        tenant: str | None = None,
        principal: str | None = None,
        provider: str | None = None,
        **request: Any,
    ) -> None:
        options = Options(
            identity=Identity(tenant=tenant, principal=principal),
            provider=provider,
            request=request,
        )
        doors = Doors(cache)
        super().__init__(inner=inner, **_inherited(inner))  # type: ignore[call-arg]  # pydantic's own signature
        self._options = options
        self._doors = doors
        install()

    def around(self, model: BaseChatModel) -> RagCacheChatModel:
        """Return the same cache in front of another model."""
        copy = self.model_copy(update={"inner": model, **_inherited(model)})
        copy._warned = self._warned  # noqa: SLF001 -- of the same class: one warning for both
        return copy

    # --- what LangChain asks a model for --------------------------------------------------------

    @property
    def _llm_type(self) -> str:
        return self.inner._llm_type  # noqa: SLF001 -- middleware compares it by name

    @property
    def model_name(self) -> str:
        """The inner model's name."""
        return model_name_of(self.inner)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return dict(self.inner._identifying_params)  # noqa: SLF001 -- stands in for the inner model

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self.inner._get_ls_params(stop=stop, **kwargs)  # noqa: SLF001 -- as above

    def _get_invocation_params(
        self, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        return self.inner._get_invocation_params(stop=stop, **kwargs)  # noqa: SLF001 -- as above

    def _combine_llm_outputs(self, llm_outputs: list[dict[str, Any] | None], /) -> dict[str, Any]:
        return self.inner._combine_llm_outputs(llm_outputs)  # noqa: SLF001 -- as above

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """Keep LangChain's own cache from mixing answers of the wrapped and the bare model."""
        return "ragcache/" + self.inner._get_llm_string(stop=stop, **kwargs)  # noqa: SLF001 -- as above

    def _should_stream(
        self,
        *,
        async_api: bool,
        run_manager: CallbackManagerForLLMRun | AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> bool:
        """Stream where the inner model would: having `_stream` here says nothing about it."""
        return self.inner._should_stream(  # noqa: SLF001 -- as above
            async_api=async_api, run_manager=run_manager, **kwargs
        )

    def get_num_tokens(self, text: str) -> int:
        """Return what the inner model counts."""
        return self.inner.get_num_tokens(text)

    def get_token_ids(self, text: str) -> list[int]:
        """Return what the inner model counts."""
        return self.inner.get_token_ids(text)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Return what the inner model counts."""
        return self.inner.get_num_tokens_from_messages(messages, tools)

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

    # --- the four doors -------------------------------------------------------------------------

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        asked, invocation = self._ask(messages, stop, run_manager, kwargs)
        way = self._doors.from_thread()
        if way is None:
            self._warn_about_loop()
            return self.inner._generate(messages, **invocation.arguments("_generate"))  # noqa: SLF001 -- the door that runs no callbacks twice
        request = asked.request.replace(no_collapse=self._doors.blocks_a_loop())
        target = self._target(asked, invocation, ThreadedInnerTarget)
        return result_of(way.answer(request, target=target))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        asked, invocation = self._ask(messages, stop, run_manager, kwargs)
        way = self._doors.from_loop()
        if way is None:
            self._warn_about_loop()
            return await self.inner._agenerate(messages, **invocation.arguments("_agenerate"))  # noqa: SLF001 -- as above
        target = self._target(asked, invocation, InnerTarget)
        return result_of(await answered(way, asked, target))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        asked, invocation = self._ask(messages, stop, run_manager, kwargs)
        way = self._doors.from_thread()
        if way is None:
            self._warn_about_loop()
            yield from self.inner._stream(messages, **invocation.arguments("_stream"))  # noqa: SLF001 -- as above
            return
        request = asked.request.replace(no_collapse=self._doors.blocks_a_loop())
        target = self._target(asked, invocation, ThreadedInnerTarget)
        replay = Replay()
        with contextlib.closing(way.stream(request, target=target)) as chunks:
            for chunk in chunks:
                yield from replay.take(chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        asked, invocation = self._ask(messages, stop, run_manager, kwargs)
        way = self._doors.from_loop()
        if way is None:
            self._warn_about_loop()
            async for piece in self.inner._astream(messages, **invocation.arguments("_astream")):  # noqa: SLF001 -- as above
                yield piece
            return
        target = self._target(asked, invocation, InnerTarget)
        replay = Replay()
        async with contextlib.aclosing(streamed(way, asked, target)) as chunks:
            async for chunk in chunks:
                for piece in replay.take(chunk):
                    yield piece

    # --- one call -------------------------------------------------------------------------------

    def _ask(
        self,
        messages: Sequence[BaseMessage],
        stop: list[str] | None,
        run_manager: Any,
        kwargs: dict[str, Any],
    ) -> tuple[Asked, Invocation]:
        asked = ask(
            self.inner,
            messages,
            options=self._options,
            run=_run_of(run_manager),
            stop=stop,
            kwargs=kwargs,
        )
        if asked.is_anonymous:
            self._warn(
                "tenant",
                "no tenant is known for this call, so the answer cache is off: pass tenant= to "
                "wrap(), or 'tenant_id' in the config's metadata or configurable",
            )
        invocation = Invocation(
            model=self.inner,
            messages=messages,
            stop=stop,
            run_manager=run_manager,
            kwargs={k: v for k, v in kwargs.items() if k != "ragcache"},
        )
        return asked, invocation

    def _target(self, asked: Asked, invocation: Invocation, kind: type[InnerTarget]) -> InnerTarget:
        provider = self._options.provider
        return kind(
            invocation,
            asked.formatted,
            provider=provider or provider_of(self.inner),
            name=f"{type(self.inner).__module__}.{type(self.inner).__qualname__}"
            f"@{base_url_of(self.inner)}",
            model_name=str(invocation.kwargs.get("model") or model_name_of(self.inner)),
            extra=extra_fields(self.inner, provider),
        )

    def _warn_about_loop(self) -> None:
        self._warn(
            "loop",
            "a call was not cached: it blocks the event loop that the cache lives on (or that loop "
            "has ended). Use the async methods, or ragcache.connect(settings)",
        )

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning(message)

    # --- identity -------------------------------------------------------------------------------

    def invoke(
        self,
        input: LanguageModelInput,  # noqa: A002 -- LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer."""
        return super().invoke(input, with_identity(config), **kwargs)

    async def ainvoke(
        self,
        input: LanguageModelInput,  # noqa: A002 -- LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer."""
        return await super().ainvoke(input, with_identity(config), **kwargs)

    def stream(
        self,
        input: LanguageModelInput,  # noqa: A002 -- LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        """Answer in pieces."""
        return super().stream(input, with_identity(config), **kwargs)

    def astream(
        self,
        input: LanguageModelInput,  # noqa: A002 -- LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """Answer in pieces."""
        return super().astream(input, with_identity(config), **kwargs)


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


def _run_of(run_manager: Any) -> ModelRun | None:
    """Return the run of a call: of its run manager, else as announced just before."""
    announced = take_model_run()
    if run_manager is None:
        return announced
    return ModelRun(
        run_id=run_manager.run_id,
        parent_run_id=run_manager.parent_run_id,
        metadata=dict(run_manager.metadata or {}),
        tags=tuple(run_manager.tags or ()),
    )


async def answered(way: Pipeline | Bridge, asked: Asked, target: InnerTarget) -> Answer:
    """Ask the cache from the running loop."""
    if isinstance(way, Bridge):
        return await way.aanswer(asked.request, target=target)
    return await way.answer(asked.request, target=target)


def streamed(
    way: Pipeline | Bridge, asked: Asked, target: InnerTarget
) -> AsyncGenerator[Chunk, None]:
    """Ask the cache for pieces from the running loop."""
    if isinstance(way, Bridge):
        return way.astream(asked.request, target=target)
    return way.stream(asked.request, target=target)
