"""One frozen event for each stage: the only outlet of the pipeline.

Hooks subscribe; a hook may fail, the request may not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from .types import (
    NO_REUSE,
    UNKNOWN_USAGE,
    Admit,
    Answer,
    Hit,
    Layout,
    Miss,
    Reject,
    Reuse,
    Scope,
    Usage,
)

_log = logging.getLogger("ragcache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What every event says: which request, whose, and how long the stage took.

    `version` is the request's own (of prompt or corpus); `provider` the target's.
    """

    request_id: str
    scope: Scope
    seconds: float = 0.0
    version: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp(Event):
    """The store was asked, or was not and why."""

    outcome: Hit | Miss
    embed_seconds: float = 0.0
    question: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaidOut(Event):
    """The prompt was arranged."""

    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Called(Event):
    """The target answered, or failed with `error`."""

    model: str
    target: str
    usage: Usage
    reuse: Reuse = NO_REUSE
    ttft_s: float | None = None
    finish_reason: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted(Event):
    """Admission decided; `stored` is None while the store is still busy."""

    verdict: Admit | Reject
    stored: bool | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Event):
    """The caller has the answer."""

    answer: Answer
    saved_usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded(Event):
    """A part of the cache failed and was passed by."""

    part: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Event):
    """A semantic hit was verified by regeneration, or reported by a user ("feedback").

    By "judge": the target was asked about an entry that was near but not served; `agreed` says
    that its answer would have fitted.
    """

    entry: str
    similarity: float
    agreed: bool
    usage: Usage = UNKNOWN_USAGE
    by: str = "verification"
    model: str = ""


Hook = Callable[[Event], None]


class Hooks:
    """The subscribed hooks, and how often one of them failed."""

    def __init__(self, *hooks: Hook) -> None:
        self._hooks = list(hooks)
        self.errors = 0

    def add(self, hook: Hook) -> None:
        """Subscribe a hook."""
        self._hooks.append(hook)

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._hooks)

    def emit(self, event: Event) -> None:
        """Hand the event to every hook."""
        for hook in self._hooks:
            try:
                hook(event)
            except Exception:  # noqa: BLE001 -- a hook may fail, the request may not
                self.errors += 1
                _log.warning("hook %r failed on %s", hook, type(event).__name__, exc_info=True)
