"""A chat model of the user's as a target: called with the user's own messages.

Only the one message whose document blocks were moved is replaced, by a copy; everything that the
model returns is carried through untouched.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import BaseRateLimiter

from ragcache.types import Call, Chunk, Completion

from .replies import completion_of

T = TypeVar("T")
_Pieces: TypeAlias = Generator[ChatGenerationChunk, None, None]
_END = object()

#: Synchronous models block a thread each; idle ones are kept. A model call waits on the network,
#: so their number bounds concurrency, not work.
THREADS = ThreadPoolExecutor(max_workers=1024, thread_name_prefix="ragcache-model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """The four inner methods of a chat model, which run no callbacks, and its settings.

    Args:
        model: Whose settings and name count.
        generate: And its siblings: the model's own `_generate`, `_agenerate`, `_stream`,
            `_astream`.
        rate_limiter: Acquired before each real call; None where LangChain does that itself.
    """

    model: BaseChatModel
    generate: Callable[..., ChatResult]
    agenerate: Callable[..., Any]
    stream: Callable[..., Iterator[ChatGenerationChunk]]
    astream: Callable[..., AsyncIterator[ChatGenerationChunk]]
    rate_limiter: BaseRateLimiter | None = None
    #: It is awaited on the cache's own loop, not where the caller is.
    lives_with_cache: bool = False

    @classmethod
    def of(cls, model: BaseChatModel, owner: Any = None, **fields: Any) -> Inner:
        """Return the methods of a model, or those that `owner` (its `super()`) has."""
        owner = owner or model
        return cls(
            model=model,
            generate=owner._generate,
            agenerate=owner._agenerate,
            stream=owner._stream,
            astream=owner._astream,
            **fields,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One call of a chat model, as LangChain made it."""

    inner: Inner
    messages: Sequence[BaseMessage]
    stop: list[str] | None = None
    run_manager: Any = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def arguments(self, method: Callable[..., Any]) -> dict[str, Any]:
        """Return the keyword arguments for one of the inner methods."""
        given = {"stop": self.stop, **self.kwargs}
        if self.run_manager is not None and _takes_run_manager(method):
            given["run_manager"] = self.run_manager
        return given


def _takes_run_manager(method: Any) -> bool:
    return _parameter(getattr(method, "__func__", method))


@functools.lru_cache(maxsize=512)
def _parameter(function: Callable[..., Any]) -> bool:
    return "run_manager" in inspect.signature(function).parameters


#: Turns what the pipeline lays out into the messages and arguments that the model gets.
Prepare = Callable[[Call, dict[str, Any]], tuple[list[BaseMessage], dict[str, Any]]]


class InnerTarget:
    """A chat model under the pipeline. Runs on the loop that it is called on.

    Args:
        invocation: The call as LangChain made it.
        provider: Selects provider rules and extra fields.
        name: Identity for keys.
        model_name: As the provider calls the model.
        prepare: Makes messages and arguments of a laid out call.
    """

    def __init__(
        self,
        invocation: Invocation,
        *,
        provider: str,
        name: str,
        model_name: str,
        prepare: Prepare,
    ) -> None:
        self.provider = provider
        self.name = name
        self.model = model_name
        self.lives_with_cache = invocation.inner.lives_with_cache
        self._inner = invocation.inner
        self._invocation = invocation
        self._prepare = prepare

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer; the model's own errors pass unchanged."""
        method = self._inner.agenerate
        messages, given = self._prepare(call, self._invocation.arguments(method))
        await self._wait_for_turn()
        return completion_of(await method(messages, **given))

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces, then the whole."""
        method = self._inner.astream
        messages, given = self._prepare(call, self._invocation.arguments(method))
        await self._wait_for_turn()
        merged = _Merged()
        async for piece in method(messages, **given):
            yield merged.take(piece)
        yield merged.whole()

    async def _wait_for_turn(self) -> None:
        if self._inner.rate_limiter is not None:
            await self._inner.rate_limiter.aacquire(blocking=True)


class ThreadedInnerTarget(InnerTarget):
    """A chat model called synchronously, in a thread with the context of its caller."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._context = copy_context()

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer; the model's own errors pass unchanged."""
        method = self._inner.generate
        messages, given = self._prepare(call, self._invocation.arguments(method))
        return completion_of(await self._threaded(self._generate, messages, given))

    def _generate(self, messages: list[BaseMessage], given: dict[str, Any]) -> ChatResult:
        self._wait_here_for_turn()
        return self._inner.generate(messages, **given)

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces, then the whole."""
        method = self._inner.stream
        pieces = self._pieces(*self._prepare(call, self._invocation.arguments(method)))
        merged = _Merged()
        try:
            while (piece := await self._threaded(next, pieces, _END)) is not _END:
                yield merged.take(piece)
        finally:
            close(pieces)
        yield merged.whole()

    def _pieces(self, messages: list[BaseMessage], given: dict[str, Any]) -> _Pieces:
        self._wait_here_for_turn()
        yield from self._inner.stream(messages, **given)

    def _threaded(self, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(
            THREADS, functools.partial(self._context.run, work, *args)
        )

    def _wait_here_for_turn(self) -> None:
        if self._inner.rate_limiter is not None:
            self._inner.rate_limiter.acquire(blocking=True)


def close(pieces: _Pieces) -> None:
    """Close a model's stream, after a step that still runs where the caller has left."""
    if inspect.getgeneratorstate(pieces) == inspect.GEN_RUNNING:
        THREADS.submit(_close_later, pieces)
    else:
        pieces.close()


def _close_later(pieces: _Pieces) -> None:
    while inspect.getgeneratorstate(pieces) == inspect.GEN_RUNNING:
        time.sleep(0.05)  # a step of the model's cannot be interrupted
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
        merged = first + rest if rest else first
        generation = ChatGeneration(
            message=message_chunk_to_message(merged.message),
            generation_info=merged.generation_info,
        )
        return Chunk(completion=completion_of(ChatResult(generations=[generation])))
