"""From a layout to its marks: what the caller marked already counts, lifetimes keep their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..types import Breakpoint, JsonObject, Layout, Message
from .breakpoints import MarkPlan, plan_marks
from .forest import GroupTree
from .plan import Plan
from .policy import MarkMode
from .rules import CacheRules, Lifetime

_FIELDS = ("cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint")
_UNITS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerMark:
    """A mark the caller put: in which message (-1: in the tools), and how long it lasts."""

    message: int
    part: int = 0
    ttl_s: int | None = None


def caller_marks(
    messages: Sequence[Message], tools: Sequence[JsonObject] = ()
) -> tuple[CallerMark, ...]:
    """Return the marks that a request carries already, in processing order."""
    found = [CallerMark(message=-1, part=at, ttl_s=ttl) for at, ttl in _marked(tools)]
    for index, message in enumerate(messages):
        parts: Sequence[JsonObject] = () if isinstance(message.content, str) else message.content
        found.extend(CallerMark(message=index, part=at, ttl_s=ttl) for at, ttl in _marked(parts))
        found.extend(
            CallerMark(message=index, part=len(parts), ttl_s=ttl)
            for _, ttl in _marked([message.extra])
        )
    return tuple(found)


def _marked(places: Sequence[JsonObject]) -> list[tuple[int, int | None]]:
    """Return the places that carry a mark themselves; a schema property of that name is none."""
    found = []
    for at, place in enumerate(places):
        mark = next((place[name] for name in _FIELDS if name in place), None)
        if mark is not None:
            found.append((at, seconds_of(mark.get("ttl") if isinstance(mark, Mapping) else None)))
    return found


def seconds_of(ttl: Any) -> int | None:
    """Return a lifetime such as "5m" or "1h" in seconds, None for the provider's default."""
    if not isinstance(ttl, str) or not ttl[:-1].isdigit() or ttl[-1] not in _UNITS:
        return None
    return int(ttl[:-1]) * _UNITS[ttl[-1]]


def plan_breakpoints(
    layout: Layout,
    *,
    rules: CacheRules | None,
    tree: GroupTree,
    mode: MarkMode = "planned",
    ttl_s: int | None = None,
    now_s: float = 0.0,
) -> MarkPlan:
    """Return where to mark a prompt for its provider; without rules, nowhere.

    Args:
        layout: As arranged.
        rules: The provider's; None for a model that is not listed.
        tree: What was sent before in this trust group.
        mode: Whether marks must pay for themselves.
        ttl_s: The lifetime wanted; the provider's default for None.
        now_s: The clock, in seconds.
    """
    if rules is None:
        return MarkPlan(reason="the model's rules are not known")
    if not rules.marked or mode == "off" or not isinstance(layout.plan, Plan):
        return MarkPlan(reason="nothing to mark")
    callers = caller_marks(layout.messages, layout.tools)
    room = rules.max_marks - len(callers)
    lifetime = rules.lifetime(ttl_s)
    boundaries = tree.boundaries(layout.plan)
    plan = plan_marks(
        boundaries,
        rules=rules,
        learned=tree.learned,
        total_tokens=layout.plan.total_tokens,
        now_s=now_s,
        marks=room,
        lifetime=lifetime,
    )
    if mode == "always" and room > 0 and layout.plan.steps:
        plan = _with_last(plan, len(layout.plan.steps) - 1, room, boundaries[-1].tokens)
    return _in_order(plan, layout.plan, callers, rules)


def _with_last(plan: MarkPlan, last: int, room: int, tokens: int) -> MarkPlan:
    marks = [mark for mark in plan.breakpoints if mark.block != last]
    kept = (
        (*marks[-(room - 1) :], Breakpoint(block=last)) if room > 1 else (Breakpoint(block=last),)
    )
    written = max(0, tokens - plan.read_tokens)
    return replace(plan, breakpoints=kept, written_tokens=written, reason="")


def _in_order(
    plan: MarkPlan, laid: Plan, callers: Sequence[CallerMark], rules: CacheRules
) -> MarkPlan:
    """Return the plan with lifetimes that never grow along the request, the caller's included."""
    default_s = rules.lifetimes[0].seconds or 0
    marks = tuple(
        replace(mark, ttl_s=_allowed(mark, plan.lifetime, laid, callers, rules, default_s))
        for mark in plan.breakpoints
    )
    return replace(plan, breakpoints=marks)


def _allowed(
    mark: Breakpoint,
    wanted: Lifetime,
    laid: Plan,
    callers: Sequence[CallerMark],
    rules: CacheRules,
    default_s: int,
) -> int | None:
    before = [c.ttl_s or default_s for c in callers if not _behind(c, mark, laid)]
    after = [c.ttl_s or default_s for c in callers if _behind(c, mark, laid)]
    seconds = max([wanted.seconds or default_s, *after])
    seconds = min([seconds, *before])
    return None if seconds == default_s else rules.lifetime(seconds).seconds


def _behind(caller: CallerMark, mark: Breakpoint, laid: Plan) -> bool:
    """Return whether the caller's mark stands behind ours."""
    if mark.block < 0:
        return caller.message > 0
    message, _ = laid.cuts[mark.block]
    return caller.message >= message
