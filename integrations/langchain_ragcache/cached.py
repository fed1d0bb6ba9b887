"""The four doors of a chat model, each through the cache."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig

from ragcache.binding import Options
from ragcache.errors import RagCacheError
from ragcache.pipeline import Pipeline
from ragcache.portal import AnyCache, Bridge, Doors
from ragcache.protocols import Target
from ragcache.sent import SentTurns
from ragcache.types import Answer, Chunk, Request

from .asking import Asked, ask
from .identity import with_identity
from .inner import Inner, InnerTarget, Invocation, ThreadedInnerTarget
from .markers import Mode
from .providers import identity_of, model_name_of, provider_of
from .replay import Replay
from .replies import readable, result_of
from .run_tree import ModelRun, install, take_model_run
from .wire import Wire

_log = logging.getLogger("ragcache")


class Binding:
    """What one `wrap` binds to its models: the cache, the options, and what was said already."""

    def __init__(
        self,
        cache: AnyCache,
        options: Options,
        *,
        markers: Mode = "planned",
        marker_ttl_s: int | None = None,
    ) -> None:
        self.options = options
        self.doors = Doors(cache)
        self.markers: Mode = markers
        self.marker_ttl_s = marker_ttl_s
        self.sent = SentTurns()
        self._warned: set[str] = set()
        install()

    def warn(self, kind: str, message: str, *, exc_info: bool = False) -> None:
        """Warn, once for each kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning(message, exc_info=exc_info)

    def warn_about_tenant(self) -> None:
        """Say that the answer cache is off."""
        self.warn(
            "tenant",
            "no tenant is known for this call, so the answer cache is off: pass tenant= to "
            "wrap(), or 'tenant_id' in the config's metadata or configurable",
        )

    def warn_about_loop(self) -> None:
        """Say that a call could not enter the cache."""
        self.warn(
            "loop",
            "a call was not cached: it blocks the event loop that the cache lives on, or that loop "
            "has ended. Use the async methods, or ragcache.connect(settings)",
        )


class CachedDoors:
    """`_generate`, `_agenerate`, `_stream` and `_astream` of a chat model, through the cache.

    To be put in front of a chat model's class; `_inner()` says whose methods answer a miss.
    """

    def _inner(self) -> Inner:
        raise NotImplementedError

    def _binding(self) -> Binding:
        raise NotImplementedError

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        invocation, asked = self._ask(messages, stop, run_manager, kwargs)
        way = self._binding().doors.from_thread()
        if way is None or asked is None:
            self._say_why_not(asked)
            method = invocation.inner.generate
            return method(messages, **invocation.arguments(method))
        request = asked.request.replace(no_collapse=self._binding().doors.blocks_a_loop())
        target = self._target(asked, invocation, ThreadedInnerTarget)
        answer = answered_here(way, request, target)
        if not readable(answer, asked.schema):
            answer = answered_here(way, request.replace(refresh=True), target)
        return result_of(answer, asked.schema)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        invocation, asked = self._ask(messages, stop, run_manager, kwargs)
        way = self._binding().doors.from_loop()
        if way is None or asked is None:
            self._say_why_not(asked)
            method = invocation.inner.agenerate
            result: ChatResult = await method(messages, **invocation.arguments(method))
            return result
        target = self._target(asked, invocation, InnerTarget)
        answer = await answered(way, asked.request, target)
        if not readable(answer, asked.schema):
            answer = await answered(way, asked.request.replace(refresh=True), target)
        return result_of(answer, asked.schema)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        invocation, asked = self._ask(messages, stop, run_manager, kwargs)
        way = self._binding().doors.from_thread()
        if way is None or asked is None:
            self._say_why_not(asked)
            method = invocation.inner.stream
            yield from method(messages, **invocation.arguments(method))
            return
        request = asked.request.replace(no_collapse=self._binding().doors.blocks_a_loop())
        target = self._target(asked, invocation, ThreadedInnerTarget)
        replay = Replay(asked.schema)
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
        invocation, asked = self._ask(messages, stop, run_manager, kwargs)
        way = self._binding().doors.from_loop()
        if way is None or asked is None:
            self._say_why_not(asked)
            method = invocation.inner.astream
            async for piece in method(messages, **invocation.arguments(method)):
                yield piece
            return
        target = self._target(asked, invocation, InnerTarget)
        replay = Replay(asked.schema)
        async with contextlib.aclosing(streamed(way, asked.request, target)) as chunks:
            async for chunk in chunks:
                for piece in replay.take(chunk):
                    yield piece

    # --- one call ------------------------------------------------------------------------------

    def _ask(
        self,
        messages: Sequence[BaseMessage],
        stop: list[str] | None,
        run_manager: Any,
        kwargs: dict[str, Any],
    ) -> tuple[Invocation, Asked | None]:
        """Return the call, and what it asks of the cache: None where that cannot be understood."""
        inner = self._inner()
        invocation = Invocation(
            inner=inner,
            messages=messages,
            stop=stop,
            run_manager=run_manager,
            kwargs={k: v for k, v in kwargs.items() if k != "ragcache"},
        )
        try:
            asked = ask(
                inner.model,
                messages,
                options=self._binding().options,
                run=_run_of(run_manager),
                stop=stop,
                kwargs=kwargs,
            )
        except RagCacheError:
            raise
        except Exception as error:  # noqa: BLE001 -- a broken cache never breaks a request; the warning tells
            text = f"a call could not be read and goes to the model as it is: {error!r}"
            self._binding().warn(type(error).__name__, text, exc_info=True)
            return invocation, None
        if asked.is_anonymous:
            self._binding().warn_about_tenant()
        return invocation, asked

    def _target(self, asked: Asked, invocation: Invocation, kind: type[InnerTarget]) -> InnerTarget:
        kind = InnerTarget if invocation.inner.lives_with_cache else kind
        model = invocation.inner.model
        binding = self._binding()
        said = binding.options.provider
        provider = said or provider_of(model)
        wire = Wire(
            model=model,
            messages=invocation.messages,
            formatted=asked.formatted,
            tenant=asked.request.tenant,
            sent=binding.sent,
            provider=said,
            takes_markers=provider == "anthropic",
            stateless=asked.is_anonymous,
            markers=binding.markers,
            marker_ttl_s=binding.marker_ttl_s,
        )
        target = kind(
            invocation,
            provider=provider,
            name=identity_of(model),
            model_name=str(invocation.kwargs.get("model") or model_name_of(model)),
            prepare=wire.prepare,
        )
        for listener in asked.listeners:
            listener(asked.request, target)
        return target

    def _say_why_not(self, asked: Asked | None) -> None:
        if asked is not None:
            self._binding().warn_about_loop()

    # --- identity ------------------------------------------------------------------------------

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer."""
        return super().invoke(input, with_identity(config), **kwargs)  # type: ignore[misc,no-any-return]  # of the class behind

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer."""
        return await super().ainvoke(input, with_identity(config), **kwargs)  # type: ignore[misc,no-any-return]  # as above

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        """Answer in pieces."""
        return super().stream(input, with_identity(config), **kwargs)  # type: ignore[misc,no-any-return]  # as above

    def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """Answer in pieces."""
        return super().astream(input, with_identity(config), **kwargs)  # type: ignore[misc,no-any-return]  # as above


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


# --- through the cache -------------------------------------------------------------------------


def answered_here(way: Bridge, request: Request, target: Target) -> Answer:
    """Ask the cache from a thread. Where the call that was joined has died with its caller's
    loop, ask again alone.
    """
    try:
        return way.answer(request, target=target)
    except (concurrent.futures.CancelledError, asyncio.CancelledError):
        return way.answer(request.replace(no_collapse=True), target=target)


async def answered(way: Pipeline | Bridge, request: Request, target: Target) -> Answer:
    """Ask the cache from the running loop; as above where a joined call has died."""
    try:
        return await _answered(way, request, target)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
    return await _answered(way, request.replace(no_collapse=True), target)


async def _answered(way: Pipeline | Bridge, request: Request, target: Target) -> Answer:
    if isinstance(way, Bridge):
        here = not getattr(target, "lives_with_cache", False)
        return await way.aanswer(request, target=target, here=here)
    return await way.answer(request, target=target)


def streamed(
    way: Pipeline | Bridge, request: Request, target: InnerTarget
) -> AsyncGenerator[Chunk, None]:
    """Ask the cache for pieces from the running loop."""
    if isinstance(way, Bridge):
        return way.astream(request, target=target, here=not target.lives_with_cache)
    return way.stream(request, target=target)
