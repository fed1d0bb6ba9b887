"""A strict Anthropic-style Messages server: at most four markers, lifetimes never growing."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

USAGE = {
    "input_tokens": 120,
    "cache_read_input_tokens": 5000,
    "cache_creation_input_tokens": 880,
    "output_tokens": 250,
}


def markers(body: dict[str, Any]) -> list[dict[str, Any]]:
    """All markers in the provider's order: tools, system, messages."""
    places = list(body.get("tools") or [])
    system = body.get("system") or []
    places += [] if isinstance(system, str) else system
    for message in body["messages"]:
        places += [] if isinstance(message["content"], str) else message["content"]
    return [p["cache_control"] for p in places if p.get("cache_control")]


class Messages:
    """The server and its recorded bodies."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.status = 200
        self.text = "The fee is 80."
        self.base_url = ""

    async def create(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        if self.status != 200:
            return _error(self.status, "overloaded_error")
        found = markers(body)
        lives = [{"5m": 300, "1h": 3600}[m.get("ttl", "5m")] for m in found]
        if len(found) > 4 or any(one < two for one, two in itertools.pairwise(lives)):
            return _error(400, f"markers: {lives}")
        roles = [m["role"] for m in body["messages"]]
        if any(a == b for a, b in itertools.pairwise(roles)) or roles[0] != "user":
            return _error(400, f"roles: {roles}")
        if body.get("stream"):
            return StreamingResponse(self._stream(body), media_type="text/event-stream")
        content = [{"type": "text", "text": self.text}]
        return JSONResponse({**_message(body), "content": content, "stop_reason": "end_turn"})

    async def _stream(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        yield _event("message_start", message={**_message(body), "content": []})
        block = {"type": "text", "text": ""}
        yield _event("content_block_start", index=0, content_block=block)
        for piece in self.text.split(" "):
            delta = {"type": "text_delta", "text": piece + " "}
            yield _event("content_block_delta", index=0, delta=delta)
        yield _event("content_block_stop", index=0)
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage={"output_tokens": 250})
        yield _event("message_stop")


def _message(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _error(status: int, message: str) -> Response:
    error = {"type": "invalid_request_error", "message": message}
    return JSONResponse({"type": "error", "error": error}, status_code=status)


@contextmanager
def serving_messages() -> Iterator[Messages]:
    """Serve on a free loopback port until the block ends."""
    messages = Messages()
    app = Starlette(routes=[Route("/v1/messages", messages.create, methods=["POST"])])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    messages.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield messages
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()
