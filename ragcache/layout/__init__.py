"""Prompt layout: what is stable first, so that the target computes each token once. Pure."""

from __future__ import annotations

from .arrange import arrange, remembered
from .batch import Slot, schedule
from .breakpoints import MarkPlan
from .citations import (
    CitationStream,
    citations,
    cited_in_tool_calls,
    cited_labels,
    labels_of,
    map_tool_arguments,
)
from .cluster import Clusters
from .conversation import (
    Conversation,
    conversation_key,
    from_json,
    next_key,
    to_json,
)
from .difference import Difference, first_difference
from .engine import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    EngineMirror,
    KvEvent,
    block_chain,
    block_ends,
    token_ends,
)
from .forest import GroupTree, PrefixForest, SentBefore
from .gap import Served, cause_of_gap, learn_life
from .marks import caller_marks, plan_breakpoints
from .parts import marked, parted
from .plan import Count, Part, Plan, Step
from .policy import LayoutPolicy
from .render import render
from .roles import Host, for_host
from .rules import CacheRules, Lifetime, Price
from .warm import HotPrefix, HotPrompts, Rollout

__all__ = [
    "AllBlocksCleared",
    "BlockHash",
    "BlockRemoved",
    "BlockStored",
    "CacheRules",
    "CitationStream",
    "Clusters",
    "Conversation",
    "Count",
    "Difference",
    "EngineMirror",
    "GroupTree",
    "Host",
    "HotPrefix",
    "HotPrompts",
    "KvEvent",
    "LayoutPolicy",
    "Lifetime",
    "MarkPlan",
    "Part",
    "Plan",
    "PrefixForest",
    "Price",
    "Rollout",
    "SentBefore",
    "Served",
    "Slot",
    "Step",
    "arrange",
    "block_chain",
    "block_ends",
    "caller_marks",
    "cause_of_gap",
    "citations",
    "cited_in_tool_calls",
    "cited_labels",
    "conversation_key",
    "first_difference",
    "for_host",
    "from_json",
    "labels_of",
    "learn_life",
    "map_tool_arguments",
    "marked",
    "next_key",
    "note_difference",
    "parted",
    "plan_breakpoints",
    "remembered",
    "render",
    "schedule",
    "to_json",
    "token_ends",
]


def note_difference(previous: object, layout: object) -> Difference | None:
    """Return where `layout` first differs from the previous layout of the same trust group.

    A difference in the tools or the system message means that nothing behind it is reused.
    """
    before, after = getattr(previous, "plan", None), getattr(layout, "plan", None)
    if not isinstance(before, Plan) or not isinstance(after, Plan):
        return None
    return first_difference(before.parts, after.parts)
