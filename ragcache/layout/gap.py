"""Predicted against served: why the target's cache gave less than was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .breakpoints import Learned, correct_life
from .rules import CacheRules

Cause = Literal[
    "", "unknown", "under minimum", "not marked", "salt", "expired", "other replica", "evicted",
    "more than predicted",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is known of one call when its usage is in.

    Args:
        predicted_tokens: Expected from the target's cache; None where nothing was predicted.
        served_tokens: Reported as cached; None where the target does not say.
        sent_tokens: Of the prefix that was sent before, whatever became of it.
        rules: The provider's; None where the model is not listed.
        marked: Any breakpoint was set, ours or the caller's.
        idle_s: Since that prefix was last sent; None where it never was.
        other_salt: The prefix was sent before in another trust group of the same tenant only.
        mirrored: The prediction came from the engine's own events.
        block_size: The engine's, in tokens: a difference below it is rounding.
    """

    predicted_tokens: int | None
    served_tokens: int | None
    sent_tokens: int = 0
    rules: CacheRules | None = None
    marked: bool = True
    idle_s: float | None = None
    other_salt: bool = False
    mirrored: bool = False
    block_size: int | None = None

    @property
    def expected_tokens(self) -> int:
        """The prediction, or where that is nothing, what was sent before: why is it gone?"""
        return self.predicted_tokens or self.sent_tokens


def cause_of_gap(call: Served) -> Cause:
    """Return the likeliest cause of the gap, empty where there is none to speak of."""
    if call.served_tokens is None or call.predicted_tokens is None:
        return "unknown"
    gap = call.expected_tokens - call.served_tokens
    if abs(gap) <= _rounding(call):
        return ""
    if gap < 0:
        return "more than predicted"
    if call.other_salt:
        return "salt"
    return _by_rules(call) or _by_place(call)


def learn_life(learned: Learned, call: Served) -> None:
    """Correct the belief how long the provider keeps entries by what it served."""
    rules, served = call.rules, call.served_tokens
    if rules is None or served is None or call.idle_s is None or call.other_salt:
        return
    if not call.marked and rules.marked:
        return
    if call.sent_tokens >= max(1, rules.min_tokens):
        correct_life(learned, rules.lifetimes[0], idle_s=call.idle_s, held=served > 0)


def _rounding(call: Served) -> int:
    """Return the tokens that whole blocks, steps and estimated counts explain."""
    step = max(call.block_size or 1, call.rules.step_tokens if call.rules else 1)
    return step - 1 if call.mirrored else max(step, call.expected_tokens // 10)


def _by_rules(call: Served) -> Cause:
    rules = call.rules
    if rules is None:
        return ""
    if call.expected_tokens < rules.min_tokens:
        return "under minimum"
    if rules.marked and not call.marked:
        return "not marked"
    life_s = rules.lifetimes[-1].seconds
    if life_s is not None and call.idle_s is not None and call.idle_s > life_s:
        return "expired"
    return ""


def _by_place(call: Served) -> Cause:
    if call.mirrored and call.predicted_tokens and not call.served_tokens:
        return "other replica"
    default_s = call.rules.lifetimes[0].seconds if call.rules else None
    if default_s is not None and call.idle_s is not None and call.idle_s > default_s:
        return "expired"
    return "evicted"
