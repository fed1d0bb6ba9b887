"""Prompt layout: what is stable first, so that the target computes each token once. Pure."""

from __future__ import annotations

from .arrange import arrange
from .citations import (
    CitationStream,
    citations,
    cited_in_tool_calls,
    cited_labels,
    labels_of,
    map_tool_arguments,
)
from .difference import Difference, first_difference
from .forest import GroupTree, PrefixForest
from .plan import Count, Part, Plan, Step
from .policy import LayoutPolicy
from .render import render

__all__ = [
    "CitationStream",
    "Count",
    "Difference",
    "GroupTree",
    "LayoutPolicy",
    "Part",
    "Plan",
    "PrefixForest",
    "Step",
    "arrange",
    "citations",
    "cited_in_tool_calls",
    "cited_labels",
    "first_difference",
    "labels_of",
    "map_tool_arguments",
    "note_difference",
    "render",
]


def note_difference(previous: object, layout: object) -> Difference | None:
    """Return where `layout` first differs from the previous layout of the same trust group.

    A difference in the tools or the system message means that nothing behind it is reused.
    """
    before, after = getattr(previous, "plan", None), getattr(layout, "plan", None)
    if not isinstance(before, Plan) or not isinstance(after, Plan):
        return None
    return first_difference(before.parts, after.parts)
