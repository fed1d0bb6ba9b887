"""Requests as they were sent, one JSON object a line, for `ragcache lint --log` and `diff`.

Prompts in full: on only where the operator asked for it, and readable by the operator alone.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..events import Called, Event, LaidOut
from ..types import Layout

_log = logging.getLogger("ragcache")

#: Prompts that were laid out and not sent yet: beyond, the oldest is forgotten.
_PENDING_MAX = 256
#: A log that was forgotten fills no disk.
MAX_BYTES = 100_000_000


class RequestLog:
    """A hook that appends each request that reached the target.

    Args:
        path: The file; made where it is missing, readable by its owner alone.
        max_bytes: From this size on nothing more is written.
        clock_s: Seconds since 1970.

    Raises:
        ConfigError: The file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int = MAX_BYTES,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._clock_s = clock_s
        self._pending: OrderedDict[str, Layout] = OrderedDict()
        self._full = False
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        except OSError as error:
            raise ConfigError(
                f"telemetry.request_log: {path} cannot be written: {error.strerror}"
            ) from error

    def __call__(self, event: Event) -> None:
        """Keep a prompt until it is sent, then write it."""
        if isinstance(event, LaidOut):
            self._pending[event.request_id] = event.layout
            if len(self._pending) > _PENDING_MAX:
                self._pending.popitem(last=False)
        elif isinstance(event, Called):
            layout = self._pending.pop(event.request_id, None)
            if layout is not None:
                self._write(line_of(event, layout, at_s=self._clock_s()))

    def _write(self, line: str) -> None:
        with self._path.open("ab") as file:
            if file.tell() + len(line) <= self._max_bytes:
                file.write(line.encode("utf-8", "surrogatepass"))
                return
        if not self._full:
            self._full = True
            _log.warning("%s is full: no more requests are logged", self._path)


def line_of(event: Called, layout: Layout, *, at_s: float) -> str:
    """Return a request as a line of the log."""
    request: dict[str, Any] = {
        "model": event.model,
        "messages": [message.wire() for message in layout.messages],
    }
    if layout.tools:
        request["tools"] = [dict(tool) for tool in layout.tools]
    row = {
        "at_s": round(at_s, 3),
        "request_id": event.request_id,
        "tenant": event.scope.tenant,
        "request": request,
        "documents": [
            {"id": document.source or document.id or "", "text": document.text}
            for block in layout.blocks
            for document in block.documents[:1]
        ],
    }
    return json.dumps(row, ensure_ascii=False, default=str) + "\n"
