"""The ways from a framework's call into a cache: the core's own, for every adapter."""

from __future__ import annotations

from ragcache.portal import AnyCache, Doors

__all__ = ["AnyCache", "Doors"]
