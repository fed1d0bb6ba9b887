"""A chat model of the user's as a target: called with the user's own messages.

Only the one message whose document blocks were moved is replaced, by a copy; everything that the
model returns is carried through untouched.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from ragcache.types import Call, Chunk, Completion, Formatted

from .messages import with_text
from .replies import completion_of

T = TypeVar("T")
_Pieces: TypeAlias = Generator[ChatGenerationChunk, None, None]
_END = object()

#: Synchronous models block a thread each; idle ones are kept. A model call waits on the network,
#: so their number bounds concurrency, not work.
_THREADS = ThreadPoolExecutor(max_workers=1024, thread_name_prefix="ragcache-model")


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One call of a chat model, as LangChain made it."""

    model: BaseChatModel
    messages: Sequence[BaseMessage]
    stop: list[str] | None = None
    run_manager: Any = None
    kwargs: dict[str, Any] = field(default_factory=dict)

    def moved(self, formatted: Formatted, call: Call) -> list[BaseMessage]:
        """Return the caller's messages, with a copy of the one whose blocks were moved."""
        messages = list(self.messages)
        if formatted.blocks:
            at, part = formatted.index, formatted.part
            text = _text(call.messages[at].content, part)
            if text != formatted.head + formatted.separator.join(formatted.blocks) + formatted.tail:
                messages[at] = with_text(messages[at], part, text)
        return messages

    def arguments(self, name: str) -> dict[str, Any]:
        """Return keyword arguments for one of the model's inner methods."""
        given = {"stop": self.stop, **self.kwargs}
        if self.run_manager is not None and _takes_run_manager(type(self.model), name):
            given["run_manager"] = self.run_manager
        return given


def _text(content: Any, part: int | None) -> str:
    return str(content if part is None else content[part].get("text", ""))


@lru_cache(maxsize=256)
def _takes_run_manager(kind: type, name: str) -> bool:
    return "run_manager" in inspect.signature(getattr(kind, name)).parameters


class InnerTarget:
    """A chat model under the pipeline. Runs on the caller's own loop.

    Args:
        invocation: The call as LangChain made it.
        formatted: Its prompt, with the blocks located.
        provider: Selects provider rules and extra fields.
        name: Identity for keys.
        model_name: As the provider calls the model.
        extra: Adds what the pipeline wants sent (a cache salt) to the keyword arguments.
    """

    def __init__(
        self,
        invocation: Invocation,
        formatted: Formatted,
        *,
        provider: str,
        name: str,
        model_name: str,
        extra: Callable[[Call, dict[str, Any]], dict[str, Any]],
    ) -> None:
        self.provider = provider
        self.name = name
        self.model = model_name
        self._invocation = invocation
        self._formatted = formatted
        self._extra = extra

    def _prepared(self, call: Call, name: str) -> tuple[list[BaseMessage], dict[str, Any]]:
        given = self._extra(call, self._invocation.arguments(name))
        return self._invocation.moved(self._formatted, call), given

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer; the model's own errors pass unchanged."""
        messages, given = self._prepared(call, "_agenerate")
        model = self._invocation.model
        if model.rate_limiter is not None:
            await model.rate_limiter.aacquire(blocking=True)
        return completion_of(await model._agenerate(messages, **given))  # noqa: SLF001 -- the one door that runs no callbacks twice

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces, then the whole."""
        messages, given = self._prepared(call, "_astream")
        model = self._invocation.model
        if model.rate_limiter is not None:
            await model.rate_limiter.aacquire(blocking=True)
        merged = _Merged()
        async for piece in model._astream(messages, **given):  # noqa: SLF001 -- as above
            yield merged.take(piece)
        yield merged.whole()


class ThreadedInnerTarget(InnerTarget):
    """A chat model called synchronously, in a thread with the context of its caller."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._context = copy_context()

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer; the model's own errors pass unchanged."""
        messages, given = self._prepared(call, "_generate")
        return completion_of(await self._threaded(self._generate, messages, given))

    def _generate(self, messages: list[BaseMessage], given: dict[str, Any]) -> ChatResult:
        model = self._invocation.model
        if model.rate_limiter is not None:
            model.rate_limiter.acquire(blocking=True)
        return model._generate(messages, **given)  # noqa: SLF001 -- as above

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces, then the whole."""
        messages, given = self._prepared(call, "_stream")
        pieces = self._pieces(messages, given)
        merged = _Merged()
        step: asyncio.Future[Any] | None = None
        try:
            while True:
                step = self._threaded(next, pieces, _END)
                if (piece := await step) is _END:
                    break
                yield merged.take(piece)
        finally:
            self._close(pieces, step)
        yield merged.whole()

    def _pieces(self, messages: list[BaseMessage], given: dict[str, Any]) -> _Pieces:
        model = self._invocation.model
        if model.rate_limiter is not None:
            model.rate_limiter.acquire(blocking=True)
        yield from model._stream(messages, **given)  # noqa: SLF001 -- as above

    def _threaded(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(
            _THREADS, functools.partial(self._context.run, work, *args)
        )

    def _close(self, pieces: _Pieces, step: asyncio.Future[Any] | None) -> None:
        """Close the model's stream, after a step that still runs where the caller has left."""
        if inspect.getgeneratorstate(pieces) == inspect.GEN_RUNNING and step is not None:
            _THREADS.submit(self._close_later, pieces)
        else:
            pieces.close()

    @staticmethod
    def _close_later(pieces: _Pieces) -> None:
        while (
            inspect.getgeneratorstate(pieces) == inspect.GEN_RUNNING
        ):  # a step of the model's cannot be interrupted
            time.sleep(0.05)
        pieces.close()


class _Merged:
    """The pieces of a stream, put together for the store and for who joins late."""

    def __init__(self) -> None:
        self._pieces: list[ChatGenerationChunk] = []

    def take(self, piece: ChatGenerationChunk) -> Chunk:
        self._pieces.append(piece)
        return Chunk(text=piece.text, raw=piece)

    def whole(self) -> Chunk:
        if not self._pieces:
            return Chunk(completion=Completion(text="", finish_reason=None))
        first, *rest = self._pieces
        merged = sum(rest, first) if rest else first
        message = merged.message
        generation = ChatGeneration(
            message=message_chunk_to_message(message), generation_info=merged.generation_info
        )
        result = ChatResult(generations=[generation])
        return Chunk(completion=completion_of(result))
