"""Named Lua scripts, kept in `.lua` files.

All begin with `lua/common.lua`. A script with a `#!lua` line is held by the server to what the
line says (Redis 7, Valkey 7.2): without the flag `no-writes` a replica refuses it, so that
nobody is ever served what a replica has not heard of yet; with `allow-oom` it runs also when
memory is full, which looking and invalidating must, and storing must not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

#: These take memory: a server that is full refuses them.
_GROWING = frozenset({"put", "remember", "exchange"})
#: These belong to no tenant's clock.
_BARE = frozenset({"take", "give"})
#: These rank by likeness.
_RANKING = frozenset({"near", "around"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script's text and the SHA-1 by which the server knows it."""

    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """Return the script of `lua/<name>.lua`."""
    flags = "" if name in _GROWING else " flags=allow-oom"
    common = "" if name in _BARE else lua("common")
    if name in _RANKING:
        common += "\n" + lua("ranking")
    text = f"#!lua{flags}\n{common}\n{lua(name)}"
    return Script(text=text, sha=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def lua(name: str) -> str:
    """Return a file below `lua/`."""
    return (files("ragcache.store.redis") / "lua" / f"{name}.lua").read_text("utf-8")
