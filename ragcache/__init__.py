"""Prefix reuse and a safe answer cache for RAG chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import RagCacheError
from .retrieved import documents
from .types import Answer, CacheStatus, Chunk, Document, Message, Request, Usage

if TYPE_CHECKING:
    from .factory import RagCache, connect
    from .portal import Portal
    from .settings import Settings

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "CacheStatus",
    "Chunk",
    "Document",
    "Message",
    "Portal",
    "RagCache",
    "RagCacheError",
    "Request",
    "Settings",
    "Usage",
    "connect",
    "documents",
]

_LATER = {"Portal": "portal", "RagCache": "factory", "Settings": "settings", "connect": "factory"}


def __getattr__(name: str) -> Any:
    """Import the assembled parts when they are used: the nouns alone are light."""
    if name not in _LATER:
        raise AttributeError(f"module 'ragcache' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LATER[name]}", __name__), name)
