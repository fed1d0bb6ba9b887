"""Where retrieved documents stand in a formatted prompt: the core's own, for every adapter."""

from __future__ import annotations

from ragcache.layout.located import Cut, Seen, cut, find_spans

__all__ = ["Cut", "Seen", "cut", "find_spans"]
