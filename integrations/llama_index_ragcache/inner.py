"""An LLM of the user's as a target: called with the user's own messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from ragcache.protocols import Target
from ragcache.threads import steps, threaded
from ragcache.types import Call, Chunk, Completion

from .forms import Form, Prompt
from .providers import with_fields
from .replies import completion_of, copied, finish_of, is_closing
from .wire import Wire


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One call of an LLM, as LlamaIndex made it."""

    llm: Any
    form: Form
    wire: Wire
    provider: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)

    def prepared(self, call: Call) -> tuple[Prompt, dict[str, Any]]:
        """Return what the LLM is called with: blocks moved, a provider's cache fields added."""
        given = with_fields(self.llm, self.provider, call, self.kwargs)
        return self.wire.prepare(call, given), given


class CalledTarget:
    """A target that knows whether it was asked, and whether it tells LlamaIndex's watchers.

    Args:
        provider: Selects provider rules and extra fields.
        name: Identity for keys.
        model: As the provider calls the model.
    """

    #: The model announces its calls itself.
    announces = True

    def __init__(self, *, provider: str, name: str, model: str) -> None:
        self.provider = provider
        self.name = name
        self.model = model
        self.called = False

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer."""
        raise NotImplementedError

    def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces, then the whole."""
        raise NotImplementedError


class InnerTarget(CalledTarget):
    """An LLM under the pipeline. Runs on the caller's own loop; its errors pass unchanged."""

    def __init__(self, invocation: Invocation, **identity: str) -> None:
        super().__init__(**identity)
        self._invocation = invocation

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer."""
        self.called = True
        prompt, given = self._invocation.prepared(call)
        door = getattr(self._invocation.llm, self._invocation.form.awhole)
        return completion_of(await door(prompt, **given))

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces, then the whole."""
        self.called = True
        prompt, given = self._invocation.prepared(call)
        door = getattr(self._invocation.llm, self._invocation.form.astream)
        merged = Merged()
        async for piece in await door(prompt, **given):
            yield merged.take(piece)
        yield merged.whole()


class ThreadedInnerTarget(InnerTarget):
    """An LLM called synchronously, in a thread with the context of its caller."""

    def __init__(self, invocation: Invocation, **identity: str) -> None:
        super().__init__(invocation, **identity)
        self._context = copy_context()

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer."""
        self.called = True
        prompt, given = self._invocation.prepared(call)
        door = getattr(self._invocation.llm, self._invocation.form.whole)
        return completion_of(await threaded(self._context, lambda: door(prompt, **given)))

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces, then the whole."""
        self.called = True
        prompt, given = self._invocation.prepared(call)
        merged = Merged()
        async for piece in steps(self._context, self._pieces(prompt, given)):
            yield merged.take(piece)
        yield merged.whole()

    def _pieces(self, prompt: Prompt, given: dict[str, Any]) -> Generator[Any, None, None]:
        door = getattr(self._invocation.llm, self._invocation.form.stream)
        yield from door(prompt, **given)


class OwnTarget(CalledTarget):
    """A target of ragcache's own behind a LlamaIndex LLM: runs on the cache's loop."""

    announces = False

    def __init__(self, target: Target, prepare: Callable[[Call], Call]) -> None:
        super().__init__(provider=target.provider, name=target.name, model=target.model)
        self._target = target
        self._prepare = prepare

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer."""
        self.called = True
        return await self._target.complete(self._prepare(call))

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces, then the whole."""
        self.called = True
        async for chunk in self._target.stream(self._prepare(call)):
            yield chunk


class Merged:
    """The pieces of a stream, put together for the store and for who joins late.

    LlamaIndex's pieces carry the whole text so far; why it ended and what it cost may stand in
    different ones.
    """

    def __init__(self) -> None:
        self._last: Any = None
        self._finish: str | None = None
        self._read: Completion | None = None

    def take(self, piece: Any) -> Chunk:
        """Note a piece, as it is now: models go on changing what they gave."""
        piece = copied(piece, deep=True)
        self._last = piece
        if is_closing(piece):
            self._finish = finish_of(piece) or self._finish
            read = completion_of(piece)
            if self._read is None or read.usage.input_tokens is not None:
                self._read = read
        return Chunk(text=piece.delta or "", raw=piece)

    def whole(self) -> Chunk:
        """Return the closing chunk."""
        if self._last is None:
            return Chunk(completion=Completion(text="", finish_reason=None))
        last = completion_of(self._last)
        read = self._read or last
        return Chunk(
            completion=Completion(
                text=last.text,
                finish_reason=self._finish or last.finish_reason,
                tool_calls=last.tool_calls,
                refusal=read.refusal,
                usage=read.usage,
                model=last.model or read.model,
                id=last.id or read.id,
                raw=self._last,
            )
        )
