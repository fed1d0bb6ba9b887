"""Pairs of questions: how many of the same meaning are served, and how many of another.

A row is `{"a", "b", "same"}` or `{"cached", "query", "reuse"}`, with an optional `kind` or
`category`, and an optional `namespace`. Each pair is a cache that holds the answer to the first
question and is asked the second.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ConfigError
from ..lookup import LookupPolicy, decide, fixed_upper, read
from ..lookup.learned import Ranker
from ..protocols import Embedder
from ..types import Hit
from .questions import (
    NOW,
    Asked,
    candidate_of,
    cosine,
    entry_of,
    error_rates,
    percentiles,
    request_of,
    share,
    understood,
)

#: Thresholds of a sweep.
SWEEP = tuple(round(0.50 + 0.005 * step, 3) for step in range(100))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two questions, and whether they have the same answer."""

    stored: str
    asked: str
    same: bool
    kind: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a pair at the lowest threshold."""

    pair: Pair
    similarity: float
    reason: str
    seconds: float

    def served(self, threshold: float) -> bool:
        """Whether it would be served at a threshold."""
        return not self.reason and self.similarity >= threshold


def pairs_of(rows: Iterable[Mapping[str, Any]]) -> list[Pair]:
    """Return the pairs of JSON rows of either shape.

    Raises:
        ConfigError: A row has neither shape.
    """
    return [_pair(row, at) for at, row in enumerate(rows, 1)]


def _pair(row: Mapping[str, Any], at: int) -> Pair:
    for stored, asked, same in (("a", "b", "same"), ("cached", "query", "reuse")):
        if {stored, asked, same} <= row.keys():
            kind = str(row.get("kind") or row.get("category") or "")
            texts = row[stored], row[asked]
            if all(isinstance(text, str) for text in texts):
                return Pair(
                    stored=texts[0],
                    asked=texts[1],
                    same=bool(row[same]),
                    kind=kind,
                    namespace=str(row.get("namespace") or ""),
                )
    raise ConfigError(
        f'row {at} is no pair: give {{"a", "b", "same"}} or {{"cached", "query", "reuse"}}'
    )


def run(
    pairs: Sequence[Pair],
    embedder: Embedder,
    *,
    policy: LookupPolicy | None = None,
    threshold: float | None = None,
    ranker: Ranker | None = None,
    sweep: bool = False,
) -> dict[str, Any] | list[dict[str, Any]]:
    """Ask every pair and return the counts, or with `sweep` one row a threshold.

    Args:
        pairs: As `pairs_of` makes them.
        embedder: Local ones are used in this thread.
        policy: The shipped one where none is given.
        threshold: Instead of the policy's.
        ranker: A fitted second opinion; its score takes the place of the similarity, also for
            thresholds, and of the explanation of single words, and of names where it has learned
            them. All other gates keep their veto.
        sweep: Return a row for each threshold.
    """
    policy = policy or LookupPolicy()
    at = policy.threshold if threshold is None else threshold
    lowest = replace(policy, threshold=0.0 if sweep or ranker else min(at, policy.threshold))
    outcomes = outcomes_of(pairs, embedder, policy=lowest, ranker=ranker)
    if sweep:
        return [counted(outcomes, level) for level in SWEEP]
    return counted(outcomes, at)


def outcomes_of(
    pairs: Sequence[Pair],
    embedder: Embedder,
    *,
    policy: LookupPolicy,
    ranker: Ranker | None = None,
    known: Mapping[str, Asked] | None = None,
) -> list[Outcome]:
    """Return what becomes of every pair at the policy's threshold."""
    asked = known or understood([text for p in pairs for text in (p.stored, p.asked)], embedder)
    for each in list(asked.values())[:5]:  # tables and caches are made before the clock runs
        read(each.text, each.embedding)
        _outcome(Pair(stored=each.text, asked=each.text, same=True), asked, policy, ranker)
    return [_outcome(pair, asked, policy, ranker) for pair in pairs]


def _outcome(
    pair: Pair, asked: Mapping[str, Asked], policy: LookupPolicy, ranker: Ranker | None
) -> Outcome:
    stored, now = asked[pair.stored], asked[pair.asked]
    similarity = cosine(stored, now)
    candidate = candidate_of(entry_of(stored, "answer", name="stored"), similarity)
    told = {} if ranker is None else {candidate.entry.id: True}
    began = time.perf_counter()
    found = decide(
        [candidate],
        asked=now.reading,
        request=request_of(now.text),
        now=NOW,
        policy=policy,
        opinions=told,
        names_told=ranker is not None and ranker.names,
    )
    if ranker is not None:
        similarity = ranker.score(stored.reading, now.reading, similarity)
    seconds = time.perf_counter() - began
    reason = "" if isinstance(found, Hit) else found.reason
    return Outcome(pair=pair, similarity=similarity, reason=reason, seconds=seconds)


def counted(outcomes: Sequence[Outcome], threshold: float) -> dict[str, Any]:
    """Return the counts at one threshold, both error rates, and an upper bound of each."""
    served = [o for o in outcomes if o.served(threshold)]
    wrong = sum(not o.pair.same for o in served)
    same = sum(o.pair.same for o in outcomes)
    return {
        "pairs": len(outcomes),
        "same": same,
        "different": len(outcomes) - same,
        "served_same": len(served) - wrong,
        "served_different": wrong,
        "served_same_share": share(len(served) - wrong, same),
        "served_different_share": share(wrong, len(outcomes) - same),
        **error_rates(wrong=wrong, hits=len(served), lookups=len(outcomes)),
        "certified": "certified" if fixed_upper(wrong, len(served)) <= 0.005 else "not certified",
        "by_kind": _by_kind(outcomes, threshold),
        "reasons": dict(
            Counter(o.reason or "below_threshold" for o in outcomes if o not in served)
        ),
        "threshold": threshold,
        "ms": percentiles([o.seconds for o in outcomes]),
    }


def _by_kind(outcomes: Sequence[Outcome], threshold: float) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        kind = outcome.pair.kind or ("same" if outcome.pair.same else "different")
        row = found.setdefault(kind, {"pairs": 0, "served": 0})
        row["pairs"] += 1
        row["served"] += int(outcome.served(threshold))
    return found
