"""Cached tokens of a call against the prefix it shared: what is right, what is a fault. Pure.

Only whole blocks are reused, hosts cache nothing below a least prefix, and some requests never
read the cache: then zero is right, and needs another word than a fault of the layout.
"""

from __future__ import annotations

from typing import Literal

Zero = Literal["ok", "below_floor", "not_readable", "floor_unknown", "unexpected_miss"]

#: Request fields with which engines compute every prompt token anew (vLLM: prompt log-probs).
NOT_READING = frozenset({"prompt_logprobs", "echo"})


def judged_reuse(
    shared: int,
    cached: int,
    *,
    floor: int | None,
    step: int = 1,
    params: frozenset[str] = frozenset(),
) -> Zero:
    """Return whether so many cached tokens are right for a shared prefix.

    Args:
        shared: Tokens at the start of the prompt that were sent before.
        cached: Tokens that the target reported as cached.
        floor: The least prefix that is cached; None where the model's is not known.
        step: Matches are whole multiples of this: the engine's block, the provider's step.
        params: Names of the request's own fields.
    """
    if params & NOT_READING:
        return "not_readable"
    if floor is None:
        return "ok" if cached else "floor_unknown"
    least = max(floor, step)
    if shared < least:
        return "below_floor"
    # A host may keep the last step back: it computes at least one token of the prompt.
    return (
        "ok" if cached >= min(shared // step * step - step, least) and cached else "unexpected_miss"
    )
