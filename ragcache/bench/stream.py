"""A stream of questions with the guard on: only misses are stored, nothing is known beforehand.

A row is `{"text", "label"}`: the same label is the same answer. The guard starts at its
uncertified threshold and learns from misses, whose fresh answer is compared with the nearest
stored one, and from the share of hits that it verifies.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import ConfigError
from ..lookup import (
    GuardPolicy,
    GuardState,
    LookupPolicy,
    Observed,
    Standing,
    decide,
    observe,
    ruling,
    standing,
)
from ..protocols import Embedder
from ..types import Candidate, Entry, Hit, Miss
from .questions import (
    NOW,
    Asked,
    candidate_of,
    entry_of,
    error_rates,
    percentiles,
    request_of,
    share,
    understood,
)

#: Wrong of all lookups held at 0.5 %.
STREAM_GUARD = GuardPolicy(per="all", floor=0.80, uncertified=0.97, enough=300)
#: Lookups between two looks at the guard.
_EVERY = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A question, and what stands for its answer: another number for another label."""

    text: str
    label: str
    answer: str


def lines_of(rows: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Return the questions of JSON rows.

    Raises:
        ConfigError: A row lacks text or label.
    """
    found = []
    numbers: dict[str, int] = {}
    for at, row in enumerate(rows, 1):
        if not isinstance(row.get("text"), str) or "label" not in row:
            raise ConfigError(f'row {at} is no question: give {{"text", "label"}}')
        label = str(row["label"])
        number = numbers.setdefault(label, len(numbers))
        found.append(Line(text=row["text"], label=label, answer=f"answer {number}"))
    return found


@dataclass(slots=True, kw_only=True)
class _Cache:
    """What is stored: vectors in one array, entries beside them."""

    vectors: np.ndarray
    entries: list[Entry] = field(default_factory=list)

    def nearest(self, asked: Asked, limit: int) -> list[Candidate]:
        held = len(self.entries)
        if not held:
            return []
        cosines = self.vectors[:held] @ asked.embedding.vector
        best = np.argpartition(-cosines, limit - 1)[:limit] if held > limit else range(held)
        return [
            candidate_of(self.entries[at], min(1.0, float(cosines[at])))
            for at in sorted(best, key=lambda at: -cosines[at])
        ]

    def store(self, asked: Asked, answer: str) -> None:
        self.vectors[len(self.entries)] = asked.embedding.vector
        self.entries.append(entry_of(asked, answer, name=str(len(self.entries))))


@dataclass(slots=True, kw_only=True)
class _Counts:
    lookups: int = 0
    hits: int = 0
    wrong: int = 0
    exact: int = 0
    same: int = 0
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def asked(self, line: Line, *, served: bool, right: bool) -> None:
        """Count a lookup; its label was asked for before where it has a kind already."""
        self.lookups += 1
        self.same += int(line.label in self.kinds)
        kind = self.kinds.setdefault(line.label, {"pairs": 0, "served": 0})
        kind["pairs"] += 1
        kind["served"] += int(served)
        self.hits += int(served)
        self.wrong += int(served and not right)


def run(
    lines: Sequence[Line],
    embedder: Embedder,
    *,
    policy: LookupPolicy | None = None,
    guard: GuardPolicy = STREAM_GUARD,
    seed: int | None = None,
    known: Mapping[str, Asked] | None = None,
) -> dict[str, Any]:
    """Ask the questions one after another and return what was served, right and wrong.

    "same" are the lookups whose label had been asked for before: what a perfect cache serves.

    Args:
        lines: As `lines_of` makes them.
        embedder: Local ones are used in this thread.
        policy: The shipped one where none is given; its threshold gives way to the guard's.
        guard: What is held. The default holds wrong/all.
        seed: Shuffles the questions; also draws which hits are verified.
        known: Questions understood already, for many runs over one file.
    """
    asked = known or understood([line.text for line in lines], embedder)
    order = list(lines)
    draw = random.Random(0 if seed is None else seed)  # noqa: S311 -- a benchmark's sample
    if seed is not None:
        draw.shuffle(order)
    policy = replace(policy or LookupPolicy(), threshold=guard.floor)
    width = next(iter(asked.values())).embedding.vector.shape[0] if asked else 1
    cache = _Cache(vectors=np.empty((len(order), width), dtype=np.float32))
    state, counts = GuardState(), _Counts()
    now = standing(state, (), guard)
    for at, line in enumerate(order):
        if at % _EVERY == 0:
            now = standing(state, (), guard)
        state = _ask(asked[line.text], line, cache, policy, guard, now, state, counts, draw)
    return _result(counts, state, standing(state, (), guard), guard)


def _ask(
    asked: Asked,
    line: Line,
    cache: _Cache,
    policy: LookupPolicy,
    guard: GuardPolicy,
    now: Standing,
    state: GuardState,
    counts: _Counts,
    draw: random.Random,
) -> GuardState:
    nearest = cache.nearest(asked, policy.limit)
    began_s = time.perf_counter()
    found = decide(
        nearest,
        asked=asked.reading,
        request=request_of(asked.text),
        now=NOW,
        policy=policy,
    )
    served = ruling(found, now)
    counts.seconds.append(time.perf_counter() - began_s)
    right = isinstance(found, Hit) and found.entry.answer["text"] == line.answer
    counts.asked(line, served=isinstance(served, Hit), right=right)
    if isinstance(served, Miss):
        cache.store(asked, line.answer)
    if isinstance(served, Hit) and served.kind == "exact":
        counts.exact += 1
        return observe(state, (), Observed(), guard)
    return observe(state, (), _observed(found, served, now, right=right, draw=draw), guard)


def _observed(
    found: Hit | Miss, served: Hit | Miss, now: Standing, *, right: bool, draw: random.Random
) -> Observed:
    if not isinstance(found, Hit):
        return Observed()
    if isinstance(served, Miss):
        return Observed(similarity=found.similarity, agreed=right)
    verified = draw.random() < now.verify_share
    return Observed(
        similarity=found.similarity,
        served=True,
        agreed=right if verified else None,
    )


def _result(
    counts: _Counts, state: GuardState, now: Standing, guard: GuardPolicy
) -> dict[str, Any]:
    hits, wrong, lookups = counts.hits, counts.wrong, max(counts.lookups, 1)
    return {
        "pairs": counts.lookups,
        "same": counts.same,
        "different": counts.lookups - counts.same,
        "lookups": counts.lookups,
        "hits": hits,
        "exact_hits": counts.exact,
        "served_same": hits - wrong,
        "served_different": wrong,
        "hit_rate": share(hits, counts.lookups),
        **error_rates(wrong=wrong, hits=hits, lookups=counts.lookups),
        "held": guard.bad_hit_guard,
        "held_per": guard.per,
        "kept": wrong / lookups <= guard.bad_hit_guard
        if guard.per == "all"
        else wrong <= guard.bad_hit_guard * hits,
        "certified": "certified" if now.certified else "not certified",
        "by_kind": counts.kinds,
        "threshold": None if now.off else round(now.threshold, 4),
        "ms": percentiles(counts.seconds),
        "guard": {
            "judged_hits": now.judged,
            "wrong_hits": now.wrong,
            "upper_hits": round(now.upper_hits, 6),
            "upper_all": round(now.upper_all, 6),
            "verifications": state.verifications,
        },
    }
