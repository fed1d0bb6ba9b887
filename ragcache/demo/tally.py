"""From what the two chains answered to the figures of the table. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..layout.rules import Price
from ..providers import cost_usd
from ..types import Usage
from .chain import Reply
from .questions import Question

#: A call counts as cold below this share of cached prompt tokens, as a prefix hit from the next.
_COLD, _PREFIX_HIT = 0.1, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question as one chain answered it.

    `written_for` is the intent of the question that a served answer was written for.
    """

    question: Question
    reply: Reply
    written_for: str = ""

    @property
    def hit(self) -> str:
        """The tier that answered, "exact" or "semantic"; "" where the model did."""
        return str(self.reply.status.get("hit") or "")

    @property
    def is_wrong_hit(self) -> bool:
        """Whether an answer was served that was written for something else."""
        return bool(self.hit) and self.written_for != self.question.intent

    @property
    def cached_share(self) -> float | None:
        """Share of the prompt that the engine took from its cache; None where it does not say."""
        usage = self.reply.usage
        if not usage.input_tokens or usage.cached_tokens is None:
            return None
        return usage.cached_tokens / usage.input_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The figures of one chain. Tokens are as the engine reports them; None: it does not."""

    requests: int
    exact: int
    semantic: int
    by_model: int
    wrong_hits: int
    stored: int
    computed_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    ttft_cold_s: float | None
    ttft_prefix_hit_s: float | None
    ttft_exact_s: float | None
    ttft_semantic_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Both chains, and the prompt tokens computed for the requests that both sent on."""

    plain: Tally
    cached: Tally
    both_sent: int
    plain_computed: int | None
    cached_computed: int | None

    @property
    def computed_share(self) -> float | None:
        """What ragcache lets the engine compute, as a share of what the plain chain does."""
        if not self.plain_computed or self.cached_computed is None:
            return None
        return self.cached_computed / self.plain_computed


def compare(plain: Sequence[Asked], cached: Sequence[Asked], *, price: Price | None) -> Comparison:
    """Return the figures of both chains; they were asked the same questions in one order."""
    sent = [(one, other) for one, other in zip(plain, cached, strict=True) if not other.hit]
    return Comparison(
        plain=tally(plain, price),
        cached=tally(cached, price),
        both_sent=len(sent),
        plain_computed=_total(one.reply.usage.computed_tokens for one, _ in sent),
        cached_computed=_total(other.reply.usage.computed_tokens for _, other in sent),
    )


def tally(asked: Sequence[Asked], price: Price | None) -> Tally:
    """Return the figures of one chain."""
    usages = [one.reply.usage for one in asked]
    return Tally(
        requests=len(asked),
        exact=_count(asked, lambda one: one.hit == "exact"),
        semantic=_count(asked, lambda one: one.hit == "semantic"),
        by_model=_count(asked, lambda one: not one.hit),
        wrong_hits=_count(asked, lambda one: one.is_wrong_hit),
        stored=_count(asked, lambda one: bool(one.reply.status.get("stored"))),
        computed_tokens=_total(usage.computed_tokens for usage in usages),
        cached_tokens=_total(usage.cached_tokens for usage in usages),
        output_tokens=_total(usage.output_tokens for usage in usages),
        cost_usd=_cost(usages, price),
        ttft_cold_s=_median(asked, lambda one: not one.hit and _between(one, 0.0, _COLD)),
        ttft_prefix_hit_s=_median(asked, lambda one: not one.hit and _between(one, _PREFIX_HIT, 1)),
        ttft_exact_s=_median(asked, lambda one: one.hit == "exact"),
        ttft_semantic_s=_median(asked, lambda one: one.hit == "semantic"),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None where one is unknown."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def _count(asked: Sequence[Asked], counts: Callable[[Asked], bool]) -> int:
    return sum(map(counts, asked))


def _between(one: Asked, least: float, most: float) -> bool:
    share = one.cached_share
    return share is not None and least <= share <= most


def _median(asked: Sequence[Asked], counts: Callable[[Asked], bool]) -> float | None:
    times = [one.reply.ttft_s for one in asked if counts(one) and one.reply.ttft_s is not None]
    return statistics.median(times) if times else None


def _cost(usages: Sequence[Usage], price: Price | None) -> float | None:
    if price is None:
        return None
    costs = [cost_usd(usage, price) for usage in usages]
    return None if None in costs else sum(cost or 0.0 for cost in costs)
