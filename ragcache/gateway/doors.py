"""The two doors through which answers are asked for, each an ASGI endpoint."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from starlette.datastructures import Headers
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from ..events import Event as CacheEvent
from ..events import LookedUp
from ..pipeline import Pipeline
from ..protocols import Target
from ..types import Answer, Chunk, Hit, Miss
from .asking import Asked, Terms, asked_as_text, asked_in_chat
from .bodies import ChatBody, PromptBody, read
from .controls import controls_of, early_status, headers_of
from .credentials import Caller, Credentials
from .faults import Fault, fault_of
from .limits import ClientLeft, Slots, body_of, while_wanted
from .replies import Reply, encoded, error_event

_log = logging.getLogger("ragcache")

#: What the lookup of the request in this context has found.
_found: ContextVar[list[Hit | Miss] | None] = ContextVar("ragcache_gateway_found", default=None)


def note_lookup(event: CacheEvent) -> None:
    """Note what a lookup found, for the headers of a stream: they go out before its answer."""
    if isinstance(event, LookedUp) and (found := _found.get()) is not None:
        found.append(event.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a request: bytes of its body, and seconds."""

    max_body_bytes: int
    body_timeout_s: float
    answer_timeout_s: float


@dataclass(slots=True, kw_only=True)
class Gateway:
    """What the doors share. `cache` and `prompts` are set while the application runs."""

    credentials: Credentials
    terms: Terms
    slots: Slots
    bounds: Bounds
    cache: Pipeline | None = None
    #: Answers bare prompts.
    prompts: Target | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Answers requests of one kind."""

    gateway: Gateway
    kind: Literal["chat", "text"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever it is, in OpenAI's shape."""
        outgoing = Outgoing(send=send)
        try:
            await self._answer(Headers(scope=scope), receive, outgoing)
        except ClientLeft:
            _log.debug("a client left before it was answered")
        except Exception as error:  # noqa: BLE001 -- the border: whatever fails is told in HTTP
            fault = fault_of(error)
            if fault.status >= 500:
                _log.log(_level_of(fault, error), "a request failed: %s", error, exc_info=error)
            await outgoing.fail(fault)

    async def _answer(self, headers: Headers, receive: Receive, outgoing: Outgoing) -> None:
        gateway, bounds = self.gateway, self.gateway.bounds
        caller = gateway.credentials.caller(headers.get("authorization"))
        with gateway.slots.taken(caller.tenant):
            raw = await body_of(
                headers,
                receive,
                max_bytes=bounds.max_body_bytes,
                limit_s=bounds.body_timeout_s,
            )
            request_id = uuid.uuid4().hex
            controls = controls_of(headers.get("cache-control"))
            asked = self._asked(raw, caller, {**controls, "metadata": {"request_id": request_id}})
            reply = self._reply(asked, request_id)
            answering = self._streamed if asked.stream else self._whole
            await while_wanted(
                receive, answering(asked, reply, outgoing), limit_s=bounds.answer_timeout_s
            )

    def _asked(self, raw: bytes, caller: Caller, given: Mapping[str, Any]) -> Asked:
        terms = self.gateway.terms
        if self.kind == "chat":
            chat, whole = read(raw, ChatBody)
            return asked_in_chat(chat, whole, caller, terms, given)
        prompt, whole = read(raw, PromptBody)
        return asked_as_text(prompt, whole, caller, terms, given)

    def _reply(self, asked: Asked, request_id: str) -> Reply:
        return Reply(
            kind=self.kind,
            request_id=request_id,
            model=asked.model,
            created_s=int(time.time()),
            include_usage=asked.include_usage,
            explains=asked.explains,
        )

    async def _whole(self, asked: Asked, reply: Reply, outgoing: Outgoing) -> None:
        cache = _running(self.gateway.cache)
        answer = await cache.answer(asked.request, target=self._target)
        headers = headers_of(answer.status, reply.request_id)
        await outgoing.json(200, reply.whole(answer), headers)

    async def _streamed(self, asked: Asked, reply: Reply, outgoing: Outgoing) -> None:
        cache = _running(self.gateway.cache)
        found: list[Hit | Miss] = []
        _found.set(found)  # this runs in a task, and so in a context, of its own
        said = _Said()
        pieces = cache.stream(asked.request, target=self._target)
        async with contextlib.aclosing(pieces):
            async for chunk in pieces:
                said.take(chunk)
                if not outgoing.started:
                    status = early_status(found[-1] if found else None, now=datetime.now(UTC))
                    await outgoing.begin(headers_of(status, reply.request_id))
                    await outgoing.more(reply.opening())
                await outgoing.more(reply.piece(chunk))
        if said.answer is not None:
            last = reply.closing(said.answer, native=said.native, finished=said.finished)
            await outgoing.end(last)

    @property
    def _target(self) -> Target | None:
        return self.gateway.prompts if self.kind == "text" else None


def _running(cache: Pipeline | None) -> Pipeline:
    if cache is None:
        raise Fault(503, "the gateway is starting", code="starting", kind="server_error")
    return cache


def _level_of(fault: Fault, error: Exception) -> int:
    """Faults of others are told without alarm: their callers see them."""
    return logging.ERROR if fault is not error and fault.status == 500 else logging.INFO


@dataclass(slots=True)
class _Said:
    """What a stream has said so far."""

    native: bool = False
    finished: bool = False
    answer: Answer | None = None

    def take(self, chunk: Chunk) -> None:
        self.answer = chunk.answer or self.answer
        if isinstance(chunk.raw, Mapping):
            self.native = True
            self.finished = self.finished or any(
                not choice.get("index") and choice.get("finish_reason")
                for choice in chunk.raw.get("choices") or ()
            )


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """A response on its way out."""

    send: Send
    started: bool = False
    _ended: bool = field(default=False, init=False)

    async def json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Send a whole response."""
        written = encoded(body)
        length = {"Content-Length": str(len(written))}
        await self._start(status, {"Content-Type": "application/json", **length, **headers})
        await self.end(written)

    async def begin(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of server-sent events."""
        kind = "text/event-stream; charset=utf-8"
        # Proxies would hold pieces back until a buffer is full.
        plain = {"Content-Type": kind, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        await self._start(200, {**plain, **headers})

    async def more(self, piece: bytes) -> None:
        """Send a piece."""
        if piece:
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self, piece: bytes) -> None:
        """Send the last piece."""
        self._ended = True
        await self.send({"type": "http.response.body", "body": piece, "more_body": False})

    async def fail(self, fault: Fault) -> None:
        """Tell a fault: as the response, or as the last event of the stream that has begun."""
        if not self.started:
            await self.json(fault.status, fault.body, fault.headers)
        elif not self._ended:
            await self.end(error_event(fault.body))

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.started = True
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        event: Event = {"type": "http.response.start", "status": status, "headers": raw}
        await self.send(event)
