"""A Chat Completions server that streams at the pace of a model: run by path, prints its port.

Usage: python paced_upstream.py PIECES SECONDS_BETWEEN
It answers with the mark that the question carries ("<mark>"), once a piece, so that an answer
given to the wrong request is seen. Without `stream` it answers at once.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"connection: keep-alive\r\n\r\n"
)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
USAGE = {"prompt_tokens": 1200, "completion_tokens": 48, "total_tokens": 1248}
COMMON = {"id": "c1", "created": 1, "model": "fake"}


def event(choices: list, **more: object) -> bytes:
    body = {**COMMON, "object": "chat.completion.chunk", "choices": choices, **more}
    data = f"data: {json.dumps(body)}\n\n".encode()
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def choice(delta: dict, finish: str | None = None) -> list:
    return [{"index": 0, "delta": delta, "finish_reason": finish}]


class Server(asyncio.Protocol):
    """One connection: request after request."""

    def __init__(self, pieces: int, pause_s: float) -> None:
        self.pieces, self.pause_s = pieces, pause_s
        self.buffer = b""

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self.buffer[:end].lower().find(b"content-length:")
        length = int(self.buffer[at + 15 : end].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.buffer) >= end + 4 + length:
            body = self.buffer[end + 4 : end + 4 + length]
            self.buffer = self.buffer[end + 4 + length :]
            self.answer(body)

    def answer(self, body: bytes) -> None:
        found = re.search(rb"<([\w-]+)>", body)
        mark = found[1].decode() if found else "none"
        if not json.loads(body).get("stream"):
            message = {"role": "assistant", "content": mark}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            whole = {**COMMON, "object": "chat.completion", "choices": choices, "usage": USAGE}
            encoded = json.dumps(whole).encode()
            self.transport.write(WHOLE % (len(encoded), encoded))
            return
        self.transport.write(STREAM + event(choice({"role": "assistant", "content": ""})))
        self.piece(event(choice({"content": f"{mark} "})), self.pieces)

    def piece(self, piece: bytes, left: int) -> None:
        if self.transport.is_closing():
            return
        if not left:
            last = event(choice({}, "stop")) + event([], usage=USAGE)
            self.transport.write(last + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            return
        self.transport.write(piece)
        asyncio.get_running_loop().call_later(self.pause_s, self.piece, piece, left - 1)


async def main(pieces: int, pause_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(pieces, pause_s), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the starter is gone


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
