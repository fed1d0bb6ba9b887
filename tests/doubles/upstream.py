"""A strict OpenAI-compatible chat server that records every body and answers from a script."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .strict import KNOWN_FIELDS, deepseek_fault, host_fault, openai_fault


@dataclass
class Reply:
    """One scripted answer. `pieces` are the streamed parts, `text` their sum."""

    text: str = "The fee is 80."
    finish_reason: str | None = "stop"
    usage: dict[str, Any] = field(
        default_factory=lambda: {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "total_tokens": 105,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
    )
    tool_calls: list[dict[str, Any]] | None = None
    refusal: str | None = None
    status: int = 200
    error: dict[str, Any] | None = None
    delay_s: float = 0.0
    hold: threading.Event | None = None  # answer only once this is set
    pieces: Sequence[str] | None = None
    piece_delay_s: float = 0.0
    break_after: int | None = None  # cut the connection after so many pieces
    without_end: bool = False  # end the stream without a finish reason
    headers: dict[str, str] = field(default_factory=dict)  # of an error
    error_inside: dict[str, Any] | None = None  # the stream ends with this error


#: OpenAI's own roles: most of the suite speaks to it as a host that takes any.
ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

Script = Callable[[dict[str, Any]], Reply]


class Upstream:
    """The server, its recorded bodies, and the script that answers."""

    def __init__(self, allowed: frozenset[str] = KNOWN_FIELDS) -> None:
        self.allowed = allowed
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.script: Script = lambda body: Reply()
        self.opened = 0
        self.closed = 0
        self.finished_at: float | None = None
        self.base_url = ""

    def answer(self, *replies: Reply) -> None:
        """Answer with these in turn, the last one for ever."""
        left = list(replies)
        self.script = lambda body: left.pop(0) if len(left) > 1 else left[0]

    def fault(self, body: dict[str, Any]) -> str:
        """Return what this host refuses in a body, "" where it accepts it."""
        return host_fault(body, fields=self.allowed, roles=ROLES)

    async def chat(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        if fault := self.fault(body):
            return _error(400, fault)
        reply = self.script(body)
        await asyncio.sleep(reply.delay_s)
        while reply.hold is not None and not reply.hold.is_set():
            await asyncio.sleep(0.005)
        if reply.status != 200:
            return _error(reply.status, "scripted", reply.error, reply.headers)
        if reply.error is not None:
            return JSONResponse({"error": reply.error})
        if body.get("stream"):
            self.opened += 1
            return StreamingResponse(self._stream(reply), media_type="text/event-stream")
        return JSONResponse(_whole(body, reply))

    async def _stream(self, reply: Reply) -> AsyncIterator[bytes]:
        try:
            for at, piece in enumerate(reply.pieces or [reply.text]):
                if reply.break_after is not None and at >= reply.break_after:
                    raise ConnectionResetError("scripted cut")
                yield _event({"content": piece} | ({"role": "assistant"} if not at else {}))
                await asyncio.sleep(reply.piece_delay_s)
            if reply.error_inside is not None:
                yield f"data: {json.dumps({'error': reply.error_inside})}\n\n".encode()
                return
            if not reply.without_end:
                for at, call in enumerate(reply.tool_calls or ()):
                    yield _event({"tool_calls": [{"index": at, **call}]})
                yield _event({}, finish=reply.finish_reason)
                yield _event(None, usage=reply.usage)
            yield b"data: [DONE]\n\n"
        finally:
            self.closed += 1
            self.finished_at = time.perf_counter()

    async def complete(self, request: Request) -> Response:
        """Continue a bare prompt: what a chat would answer, in the shape of `/completions`."""
        body = json.loads(await request.body())
        self.bodies.append(body)
        reply = self.script(body)
        if reply.status != 200:
            return _error(reply.status, "scripted", reply.error, reply.headers)
        if not body.get("stream"):
            return JSONResponse(_text(body, reply.text, reply.finish_reason, reply.usage))
        parts = [_text(body, piece, None, None) for piece in reply.pieces or [reply.text]]
        parts += [_text(body, "", reply.finish_reason, None)]
        parts += [{**_text(body, "", None, reply.usage), "choices": []}]
        events = [f"data: {json.dumps(part)}\n\n" for part in parts]
        return Response("".join(events) + "data: [DONE]\n\n", media_type="text/event-stream")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "fake", "object": "model"}]})


class StrictOpenAI(Upstream):
    """Refuses what OpenAI refuses."""

    def fault(self, body: dict[str, Any]) -> str:
        return openai_fault(body)


class StrictDeepSeek(Upstream):
    """Refuses what DeepSeek refuses, and counts as DeepSeek does."""

    def __init__(self) -> None:
        super().__init__()
        usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        usage |= {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}
        self.answer(Reply(usage=usage))

    def fault(self, body: dict[str, Any]) -> str:
        return deepseek_fault(body)


def _error(
    status: int,
    message: str,
    error: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    body = error or {"message": message, "type": "scripted", "code": str(status)}
    return JSONResponse({"error": body}, status_code=status, headers=headers)


def _whole(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = reply.tool_calls
    if reply.refusal:
        message["refusal"] = reply.refusal
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
        "usage": reply.usage,
    }


def _text(body: dict[str, Any], text: str, finish: str | None, usage: Any) -> dict[str, Any]:
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1,
        "model": body["model"],
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}],
        "usage": usage,
    }


def _event(delta: dict[str, Any] | None, *, finish: str | None = None, usage: Any = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "fake",
        "choices": choices,
        "usage": usage,
    }
    return f"data: {json.dumps(chunk)}\n\n".encode()


@contextmanager
def serving(upstream: Upstream) -> Iterator[Upstream]:
    """Serve on a free loopback port until the block ends."""
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", upstream.chat, methods=["POST"]),
            Route("/v1/completions", upstream.complete, methods=["POST"]),
            Route("/v1/models", upstream.models),
        ]
    )
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    upstream.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield upstream
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
