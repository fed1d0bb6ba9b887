"""Stage 2: from candidates to a hit or a miss. Pure: no I/O, no clock."""

from __future__ import annotations

from .agreement import answers_agree
from .bounds import anytime_upper, fixed_upper, needed_without_error
from .context import needs_context
from .counting import (
    GuardState,
    Happening,
    Judgement,
    Observed,
    counted,
    observe,
    state_from_json,
    state_json,
)
from .decision import NO_OPINIONS, REASONS, decide, effective_threshold, exact_hit, grey
from .guard import Standing, ruling, standing
from .policy import GuardPolicy, LookupPolicy
from .reading import Reading, likeness, read
from .support import SUPPORT, support_of

__all__ = [
    "NO_OPINIONS",
    "REASONS",
    "SUPPORT",
    "GuardPolicy",
    "GuardState",
    "Happening",
    "Judgement",
    "LookupPolicy",
    "Observed",
    "Reading",
    "Standing",
    "answers_agree",
    "anytime_upper",
    "counted",
    "decide",
    "effective_threshold",
    "exact_hit",
    "fixed_upper",
    "grey",
    "likeness",
    "needed_without_error",
    "needs_context",
    "observe",
    "read",
    "ruling",
    "standing",
    "state_from_json",
    "state_json",
    "support_of",
]
