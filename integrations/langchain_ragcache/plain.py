"""Any Python value as plain data, for keys: the core's own, for every adapter."""

from __future__ import annotations

from ragcache.plain import plain

__all__ = ["plain"]
