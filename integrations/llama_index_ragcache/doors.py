"""The eight doors of an LLM, with the cache behind them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.prompts import BasePromptTemplate

from ragcache.binding import Options
from ragcache.layout.markers import Mode
from ragcache.portal import Bridge, Doors
from ragcache.sent import SentTurns
from ragcache.types import Answer, Chunk, JsonObject, Request

from .announcing import Telling
from .asking import Asked, ask
from .forms import CHAT, COMPLETION, Form, Prompt, messages_of
from .inner import CalledTarget
from .prompted import (
    Variables,
    prompted_messages,
    prompted_text,
    structured,
    variables_behind,
    variables_of,
)
from .reading import Reading

if TYPE_CHECKING:
    _LLM = FunctionCallingLLM
else:
    _LLM = object  # at run time it stands before the class of the user's own LLM

_log = logging.getLogger("ragcache")
_END = object()


class Bound:
    """What an LLM is bound to: a cache, and how it was wrapped. Shared by its copies."""

    def __init__(
        self,
        doors: Doors,
        options: Options,
        *,
        markers: Mode = "planned",
        marker_ttl_s: int | None = None,
    ) -> None:
        self.doors = doors
        self.options = options
        self.markers: Mode = markers
        self.marker_ttl_s = marker_ttl_s
        self.sent = SentTurns()
        self._warned: set[str] = set()

    def __deepcopy__(self, _: dict[int, Any]) -> Bound:
        """Return itself: a live cache has no copy."""
        return self

    def warn(self, kind: str, message: str) -> None:
        """Warn once."""
        if kind not in self._warned:
            self._warned.add(kind)
            _log.warning(message)


class RagCacheDoors(_LLM):
    """Stands before the class of an LLM: every call goes by the cache."""

    _ragcache: Bound

    # --- what a kind of LLM says ----------------------------------------------------------------

    def _ragcache_target(
        self, form: Form, prompt: Prompt, asked: Asked, kwargs: dict[str, Any], *, threaded: bool
    ) -> CalledTarget:
        raise NotImplementedError

    def _ragcache_bare(self) -> Any:
        """Return the LLM without the cache, for calls that cannot reach it."""
        raise NotImplementedError

    def _ragcache_params(
        self, kwargs: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Sequence[JsonObject]]:
        """Return all that shapes the answer besides the prompt, and the tools ragcache sends."""
        raise NotImplementedError

    #: The target runs on the caller's loop, not on the cache's.
    _ragcache_here: ClassVar[bool] = True

    @property
    def bound_tenant(self) -> str | None:
        """Whose requests these are, where that was said once for all."""
        return self._ragcache.options.identity.tenant

    # --- the doors ------------------------------------------------------------------------------

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """Answer a chat."""
        return self._whole(CHAT, messages, kwargs)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002 -- LlamaIndex's signature
        """Complete a text."""
        return self._whole(COMPLETION, prompt, {"formatted": formatted, **kwargs})

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """Answer a chat in pieces."""
        return self._stream(CHAT, messages, kwargs)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002 -- LlamaIndex's signature
        """Complete a text in pieces."""
        return self._stream(COMPLETION, prompt, {"formatted": formatted, **kwargs})

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """Answer a chat."""
        return await self._awhole(CHAT, messages, kwargs)

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002 -- LlamaIndex's signature
        """Complete a text."""
        return await self._awhole(COMPLETION, prompt, {"formatted": formatted, **kwargs})

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        """Answer a chat in pieces."""
        return await self._astream(CHAT, messages, kwargs)

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:  # noqa: FBT001, FBT002 -- LlamaIndex's signature
        """Complete a text in pieces."""
        return await self._astream(COMPLETION, prompt, {"formatted": formatted, **kwargs})

    # --- whole answers --------------------------------------------------------------------------

    def _whole(self, form: Form, prompt: Prompt, kwargs: dict[str, Any]) -> Any:
        asked, kwargs = self._asked(prompt, kwargs)
        way = self._ragcache.doors.from_thread()
        if way is None:
            self._warn_about_loop()
            return getattr(self._ragcache_bare(), form.whole)(prompt, **kwargs)
        request = asked.request.replace(no_collapse=self._ragcache.doors.blocks_a_loop())
        target = self._ragcache_target(form, prompt, asked, kwargs, threaded=True)
        telling = Telling(self, prompt, kwargs, target)
        return _replied(form, telling, way.answer(request, target=target))

    async def _awhole(self, form: Form, prompt: Prompt, kwargs: dict[str, Any]) -> Any:
        asked, kwargs = self._asked(prompt, kwargs)
        way = self._ragcache.doors.from_loop()
        if way is None:
            self._warn_about_loop()
            return await getattr(self._ragcache_bare(), form.awhole)(prompt, **kwargs)
        target = self._ragcache_target(form, prompt, asked, kwargs, threaded=False)
        telling = Telling(self, prompt, kwargs, target)
        if isinstance(way, Bridge):
            answer = await way.aanswer(asked.request, target=target, here=self._ragcache_here)
        else:
            answer = await way.answer(asked.request, target=target)
        return _replied(form, telling, answer)

    # --- pieces ---------------------------------------------------------------------------------

    def _stream(self, form: Form, prompt: Prompt, kwargs: dict[str, Any]) -> Any:
        asked, kwargs = self._asked(prompt, kwargs)
        way = self._ragcache.doors.from_thread()
        if way is None:
            self._warn_about_loop()
            return getattr(self._ragcache_bare(), form.stream)(prompt, **kwargs)
        request = asked.request.replace(no_collapse=self._ragcache.doors.blocks_a_loop())
        target = self._ragcache_target(form, prompt, asked, kwargs, threaded=True)
        reading = Reading(form, Telling(self, prompt, kwargs, target))
        return _read(way, request, target, reading)

    async def _astream(self, form: Form, prompt: Prompt, kwargs: dict[str, Any]) -> Any:
        asked, kwargs = self._asked(prompt, kwargs)
        way = self._ragcache.doors.from_loop()
        if way is None:
            self._warn_about_loop()
            return await getattr(self._ragcache_bare(), form.astream)(prompt, **kwargs)
        target = self._ragcache_target(form, prompt, asked, kwargs, threaded=False)
        reading = Reading(form, Telling(self, prompt, kwargs, target))
        if isinstance(way, Bridge):
            chunks = way.astream(asked.request, target=target, here=self._ragcache_here)
        else:
            chunks = way.stream(asked.request, target=target)
        return _aread(chunks, reading)

    # --- one call -------------------------------------------------------------------------------

    def _asked(self, prompt: Prompt, kwargs: dict[str, Any]) -> tuple[Asked, dict[str, Any]]:
        params, tools = self._ragcache_params(kwargs)
        asked = ask(
            messages_of(prompt),
            options=self._ragcache.options,
            variables=variables_behind(prompt),
            params=params,
            tools=tools,
            asked_of_cache=kwargs.get("ragcache"),
        )
        if asked.is_anonymous:
            self._ragcache.warn(
                "tenant",
                "no tenant is known for this call, so the answer cache is off: pass tenant= to "
                "wrap(), or call inside instrument_tags({'tenant_id': ...})",
            )
        return asked, {k: v for k, v in kwargs.items() if k != "ragcache"}

    def _warn_about_loop(self) -> None:
        self._ragcache.warn(
            "loop",
            "a call was not cached: it blocks the event loop that the cache lives on (or that loop "
            "has ended). Use the async methods, or ragcache.connect(settings)",
        )

    # --- templates remember what they were filled with ------------------------------------------

    def _get_messages(self, prompt: BasePromptTemplate, **prompt_args: Any) -> list[ChatMessage]:
        messages = super()._get_messages(prompt, **prompt_args)
        return prompted_messages(messages, variables_of(prompt, prompt_args))

    def _get_prompt(self, prompt: BasePromptTemplate, **prompt_args: Any) -> str:
        text = super()._get_prompt(prompt, **prompt_args)
        return prompted_text(text, variables_of(prompt, prompt_args))

    def structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **prompt_args: Any
    ) -> Any:
        """Return a structured answer."""
        with structured(variables_of(prompt, prompt_args)):
            return super().structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)

    async def astructured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **prompt_args: Any
    ) -> Any:
        """Return a structured answer."""
        with structured(variables_of(prompt, prompt_args)):
            return await super().astructured_predict(output_cls, prompt, llm_kwargs, **prompt_args)

    def stream_structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **prompt_args: Any
    ) -> Generator[Any, None, None]:
        """Yield a structured answer as it grows."""
        variables = variables_of(prompt, prompt_args)
        pieces = super().stream_structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)
        while (piece := _next(pieces, variables)) is not _END:
            yield piece

    async def astream_structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **prompt_args: Any
    ) -> Any:
        """Yield a structured answer as it grows."""
        variables = variables_of(prompt, prompt_args)
        pieces = await super().astream_structured_predict(
            output_cls, prompt, llm_kwargs, **prompt_args
        )
        return _anext_each(pieces, variables)


def _next(pieces: Generator[Any, None, None], variables: Variables) -> Any:
    with structured(variables):
        return next(pieces, _END)


async def _anext_each(
    pieces: AsyncGenerator[Any, None], variables: Variables
) -> AsyncGenerator[Any, None]:
    while True:
        with structured(variables):
            piece = await anext(pieces, _END)
        if piece is _END:
            return
        yield piece


def _replied(form: Form, telling: Telling, answer: Answer) -> Any:
    response = form.reply(answer)
    telling.end(response, answer)
    return response


def _read(
    way: Bridge, request: Request, target: CalledTarget, reading: Reading
) -> Generator[Any, None, None]:
    with contextlib.closing(way.stream(request, target=target)) as chunks:
        try:
            for chunk in chunks:
                yield from reading.take(chunk)
        except Exception as error:
            reading.failed(error)
            raise


async def _aread(
    chunks: AsyncGenerator[Chunk, None], reading: Reading
) -> AsyncGenerator[Any, None]:
    async with contextlib.aclosing(chunks):
        try:
            async for chunk in chunks:
                for piece in reading.take(chunk):
                    yield piece
        except Exception as error:
            reading.failed(error)
            raise


__all__ = ["Bound", "RagCacheDoors"]
