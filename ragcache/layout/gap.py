"""Predicted against served: why the target's cache gave less than was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
        prompt_tokens: Of the whole prompt, where reported.
        rules: The provider's; None where the model is not listed.
        marked: Any breakpoint was set, ours or the caller's.
        idle_s: Since the predicted prefix was last sent; None where it never was.
        salt_changed: Another cache salt than when the prefix was sent.
        replica_changed: Another replica than the one that has the prefix.
        mirrored: The prediction came from the engine's own events.
        block_size: The engine's, in tokens: a difference below it is rounding.
    """

    predicted_tokens: int | None
    served_tokens: int | None
    prompt_tokens: int | None = None
    rules: CacheRules | None = None
    marked: bool = True
    idle_s: float | None = None
    salt_changed: bool = False
    replica_changed: bool = False
    mirrored: bool = False
    block_size: int | None = None


def cause_of_gap(call: Served) -> Cause:
    """Return the likeliest cause of the gap, empty where there is none to speak of."""
    if call.served_tokens is None or call.predicted_tokens is None:
        return "unknown"
    gap = call.predicted_tokens - call.served_tokens
    if abs(gap) <= _rounding(call):
        return ""
    if gap < 0:
        return "more than predicted"
    if call.salt_changed:
        return "salt"
    return _by_rules(call) or _by_place(call)


def _rounding(call: Served) -> int:
    """Return the tokens that whole blocks, steps and estimated counts explain."""
    step = max(call.block_size or 1, call.rules.step_tokens if call.rules else 1)
    return max(step, (call.predicted_tokens or 0) // 10)


def _by_rules(call: Served) -> Cause:
    rules = call.rules
    if rules is None:
        return ""
    longest = max(call.prompt_tokens or 0, call.predicted_tokens or 0)
    if longest < rules.min_tokens:
        return "under minimum"
    if rules.marked and not call.marked:
        return "not marked"
    life_s = rules.lifetimes[-1].seconds
    if life_s is not None and call.idle_s is not None and call.idle_s > life_s:
        return "expired"
    return ""


def _by_place(call: Served) -> Cause:
    if call.replica_changed or (call.mirrored and not call.served_tokens):
        return "other replica"
    default_s = call.rules.lifetimes[0].seconds if call.rules else None
    if default_s is not None and call.idle_s is not None and call.idle_s > default_s:
        return "expired"
    return "evicted"
