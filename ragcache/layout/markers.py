"""Cache markers (`cache_control`) of providers that match only at marked places. Pure.

At most four in a request, over tools, system and messages together, and a marker of long life may
not follow one of short life (https://docs.claude.com/en/docs/build-with-claude/prompt-caching,
checked 2026-11). The caller's own markers count and stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..types import Breakpoint

MAX_MARKERS = 4
#: Below this the provider keeps nothing; a marker would only take a place.
MIN_CHARS = 4 * 1024
_HOUR_S = 3600
#: Places of a caller's marker ahead of all messages, and behind them.
AHEAD = -1
BEHIND = 1 << 30

Life = Literal["5m", "1h"]
#: planned: where the expected saving pays for the write. always: also behind the last block, for
#: traffic that is known to repeat. off: the caller's markers only.
Mode = Literal["planned", "always", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the caller's own markers leave: how many places, and which lifetimes are allowed."""

    places: int
    lives: frozenset[Life]


def room_left(callers: Iterable[tuple[int, Life]], *, at: int) -> Room:
    """Return what is left for markers in message `at`.

    Args:
        callers: Place (a message, AHEAD or BEHIND) and lifetime of each marker the caller set.
        at: The message that ours stand in.
    """
    ahead: list[Life] = []
    behind: list[Life] = []
    for place, life in callers:
        (ahead if place < at or place == AHEAD else behind).append(life)
    lives: set[Life] = {"5m", "1h"}
    if "5m" in ahead:
        lives -= {"1h"}
    if "1h" in behind:
        lives -= {"5m"}
    return Room(places=MAX_MARKERS - len(ahead) - len(behind), lives=frozenset(lives))


def life_of(marker: Any) -> Life:
    """Return the lifetime that a marker asks for."""
    return "1h" if isinstance(marker, Mapping) and marker.get("ttl") == "1h" else "5m"


def planned(
    breakpoints: Sequence[Breakpoint], *, blocks: int, chars: int, mode: Mode, ttl_s: int | None
) -> tuple[Breakpoint, ...]:
    """Return where to mark: as the pipeline planned it by the provider's rules and prices.

    With mode "always" also behind the last block, where the prefix is long enough to be kept.
    """
    if mode == "off":
        return ()
    given = tuple(b for b in breakpoints if b.block < blocks)
    last = blocks - 1
    if mode == "planned" or last < 0 or chars < MIN_CHARS or any(b.block == last for b in given):
        return given
    return (*given, Breakpoint(block=last, ttl_s=ttl_s))


def marks(wanted: Sequence[Breakpoint], left: Room) -> dict[int, dict[str, Any]]:
    """Return markers by block, the last blocks first where not all have room."""
    chosen = sorted(wanted, key=lambda b: b.block)[-left.places :] if left.places > 0 else []
    life: Life | None = None
    if left.lives:
        long = any(b.ttl_s and b.ttl_s >= _HOUR_S for b in chosen)
        life = "1h" if ("1h" in left.lives and (long or "5m" not in left.lives)) else "5m"
    if life is None:
        return {}
    marker = {"type": "ephemeral"} if life == "5m" else {"type": "ephemeral", "ttl": "1h"}
    return {b.block: marker for b in chosen}
