"""A Chat Completions server that costs next to nothing: run by path, prints its port.

Usage: python fast_upstream.py PIECES
It reads each request's body and streams an answer that was made before.
"""

from __future__ import annotations

import asyncio
import json
import sys

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    b"connection: keep-alive\r\n\r\n"
)


def events(pieces: int) -> list[bytes]:
    usage = {
        "prompt_tokens": 1200,
        "completion_tokens": pieces,
        "total_tokens": 1200 + pieces,
        "prompt_tokens_details": {"cached_tokens": 1024},
    }
    bodies = [{"choices": [choice({"role": "assistant", "content": ""})]}]
    bodies += [{"choices": [choice({"content": f" word{n}"})]} for n in range(pieces)]
    bodies += [{"choices": [choice({}, "stop")]}, {"choices": [], "usage": usage}]
    common = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "fake"}
    lines = [f"data: {json.dumps({**common, **body})}\n\n".encode() for body in bodies]
    return [*lines, b"data: [DONE]\n\n"]


def choice(delta: dict, finish: str | None = None) -> dict:
    return {"index": 0, "delta": delta, "finish_reason": finish}


def chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Server(asyncio.Protocol):
    """Answers each request on a connection with the same stream."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.buffer = b""

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            self.buffer = self.buffer[end + 4 + length :]
            self.transport.write(self.answer)


async def main(pieces: int) -> None:
    answer = HEAD + b"".join(chunked(event) for event in events(pieces)) + b"0\r\n\r\n"
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(answer), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # until the starter is gone


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
