"""Bodies as bytes, and how much two of them share."""

from __future__ import annotations

import json
from typing import Any


def render(body: dict[str, Any]) -> bytes:
    """Tools as sent, then the messages, each with its role, text parts only."""
    parts = [json.dumps(body.get("tools") or [])]
    for message in body["messages"]:
        content = message["content"]
        if not isinstance(content, str):
            content = "".join(p.get("text", "") for p in content or [])
        parts.append(f"<{message['role']}>{content}")
    return "\n".join(parts).encode()


def lcp(a: bytes, b: bytes) -> int:
    """Length in bytes of the common prefix."""
    for at, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return at
    return min(len(a), len(b))
