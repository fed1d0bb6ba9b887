"""Stage 2: from candidates to a hit or a miss. Pure: no I/O, no clock."""

from __future__ import annotations

from .agreement import answers_agree
from .bounds import anytime_upper, fixed_upper, needed_without_error
from .context import needs_context
from .decision import REASONS, decide, effective_threshold
from .guard import (
    GuardPolicy,
    GuardState,
    Observed,
    Standing,
    judge,
    observe,
    ruling,
    standing,
    state_from_json,
    state_json,
)
from .policy import LookupPolicy
from .reading import Reading, likeness, read

__all__ = [
    "REASONS",
    "GuardPolicy",
    "GuardState",
    "LookupPolicy",
    "Observed",
    "Reading",
    "Standing",
    "answers_agree",
    "anytime_upper",
    "decide",
    "effective_threshold",
    "fixed_upper",
    "judge",
    "likeness",
    "needed_without_error",
    "needs_context",
    "observe",
    "read",
    "ruling",
    "standing",
    "state_from_json",
    "state_json",
]
