"""Stage 2: from candidates to a hit or a miss. Pure: no I/O, no clock."""

from __future__ import annotations

from .context import needs_context
from .decision import REASONS, decide, effective_threshold
from .policy import LookupPolicy
from .reading import Reading, read

__all__ = [
    "REASONS",
    "LookupPolicy",
    "Reading",
    "decide",
    "effective_threshold",
    "needs_context",
    "read",
]
