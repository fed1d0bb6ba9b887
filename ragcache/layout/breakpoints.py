"""Where to tell the provider that a prefix ends, for providers that match only there.

Only the deepest mark decides the fee: all tokens between the deepest boundary that is read and
the deepest that is marked are billed as written, so shallower marks are free. One more block is
worth its fee if the chance that its prefix is used again within the entry's life exceeds

    (w - 1) / ((w - 1) + (1 - r))        w, r: price of a written and of a read token

whatever its length (.22 for w = 1.25, r = .1). The chance is learned from the requests
themselves, written or not, so learning costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..types import Breakpoint
from .rules import CacheRules, Lifetime
from .tree import Record

#: Tokens that may be lost to learning, as a share of all tokens, beside one average prompt.
_ALLOWANCE = 0.0005
#: From so many visits on a prefix speaks for itself, whatever its blocks were retrieved with.
_SPEAKS = 3
#: Stands for every class of support.
_ANY = -1
#: Weight of what is believed before a bucket was seen, in trials.
_PRIOR = 2.0
#: A prefix lost sooner than this share of its lifetime was not lost by age.
_LEAST_SHARE = 0.25
#: What is found lost was lost some time before.
_BEFORE = 0.9
#: Weight of one observation of a lifetime.
_OBSERVED = 0.25
#: Lower ends of the classes of counts.
_CLASSES = (1, 2, 3, 6, 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """A place where a prefix may end.

    Args:
        tokens: Length of the prefix.
        record: What is known of it; an empty record for a new prefix.
        support: Past requests whose set of blocks contains this prefix's.
    """

    tokens: int
    record: Record
    support: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkPlan:
    """What is marked, and what that should cost.

    Args:
        breakpoints: Ours, in the order of the prompt.
        read_tokens: Expected to be read from the provider's cache.
        written_tokens: Expected to be written, and billed as such.
        lifetime: What the marks ask for.
        reason: Why nothing is marked, where nothing is.
    """

    breakpoints: tuple[Breakpoint, ...] = ()
    read_tokens: int = 0
    written_tokens: int = 0
    lifetime: Lifetime = field(default_factory=Lifetime)
    reason: str = ""


@dataclass(slots=True)
class Learned:
    """What one trust group's requests taught about reuse, and what marks cost so far."""

    trials: dict[tuple[int, int], float] = field(default_factory=dict)
    successes: dict[tuple[int, int], float] = field(default_factory=dict)
    requests: int = 0
    tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    #: Believed share of the documented lifetime, corrected by what was served.
    life_share: float = 0.8

    def chance(self, bucket: tuple[int, int]) -> float:
        """Return the chance that a prefix of this bucket is used again within its life.

        A bucket that was seldom seen leans on all prefixes with one class of visits less.
        """
        fewer = (bucket[0] - 1, _ANY)
        prior = self.successes.get(fewer, 0.0) / (self.trials.get(fewer, 0.0) + _PRIOR)
        return (self.successes.get(bucket, 0.0) + _PRIOR * prior) / (
            self.trials.get(bucket, 0.0) + _PRIOR
        )

    def visit(self, boundary: Boundary, now_s: float, life_s: float | None) -> None:
        """Note that a prefix was sent: a trial now, a success for the visit before."""
        record = boundary.record
        used = record.bucket
        if used is not None and (life_s is None or now_s - record.used_at_s <= life_s):
            _count(self.successes, used)
        record.bucket = bucket_of(boundary)
        _count(self.trials, record.bucket)
        record.visits += 1
        record.used_at_s = now_s


def _count(counts: dict[tuple[int, int], float], bucket: tuple[int, int]) -> None:
    for name in (bucket, (bucket[0], _ANY)):
        counts[name] = counts.get(name, 0.0) + 1.0


def bucket_of(boundary: Boundary) -> tuple[int, int]:
    """Return the bucket: earlier visits, and requests that held the same blocks, by classes."""
    visits = _class(boundary.record.visits)
    return (visits, 0 if visits > _SPEAKS else _class(boundary.support))


def _class(count: int) -> int:
    return sum(1 for lower in _CLASSES if count >= lower)


def worthwhile(rules: CacheRules, lifetime: Lifetime) -> float:
    """Return the chance of reuse above which writing pays."""
    fee, gain = lifetime.write - 1.0, 1.0 - rules.read
    return fee / (fee + gain) if fee > 0 else 0.0


def believed_life_s(lifetime: Lifetime, learned: Learned) -> float | None:
    """Return how long an entry is believed to live, None for as long as anything is remembered.

    Shorter than documented: an entry believed alive but gone is written anew at full fee, while
    one believed gone but alive is read all the same.
    """
    return None if lifetime.seconds is None else lifetime.seconds * learned.life_share


def correct_life(learned: Learned, lifetime: Lifetime, *, idle_s: float, held: bool) -> None:
    """Correct the belief how long entries live by one that was, or was not, held after a time.

    Only what contradicts the belief teaches. What is lost early was not lost by age: it was
    evicted, or another replica was asked.

    Args:
        learned: Of the trust group.
        lifetime: As documented.
        idle_s: Since the entry was last used.
        held: Whether the provider read it.
    """
    if lifetime.seconds is None:
        return
    share = idle_s / lifetime.seconds
    contradicts = share > learned.life_share if held else share < learned.life_share
    if contradicts and share >= _LEAST_SHARE:
        seen = min(share, 1.0) if held else _BEFORE * share
        learned.life_share += _OBSERVED * (seen - learned.life_share)


def plan_marks(
    boundaries: Sequence[Boundary],
    *,
    rules: CacheRules,
    learned: Learned,
    total_tokens: int,
    now_s: float = 0.0,
    marks: int | None = None,
    lifetime: Lifetime | None = None,
) -> MarkPlan:
    """Return where to mark.

    Args:
        boundaries: After the head, then after each block.
        rules: The provider's.
        learned: What this trust group's requests taught.
        total_tokens: Length of the whole prompt.
        now_s: The clock, in seconds.
        marks: How many marks are left beside the caller's own; the provider's number for None.
        lifetime: What the marks ask for; the provider's default for None.
    """
    life = lifetime or rules.lifetimes[0]
    room = rules.max_marks if marks is None else min(marks, rules.max_marks)
    if not rules.marked or room < 1:
        return MarkPlan(lifetime=life, reason="no marks" if not rules.marked else "marks used up")
    life_s = believed_life_s(life, learned)
    alive = [_alive(boundary.record, now_s, life_s) for boundary in boundaries]
    chances = _chances(boundaries, learned)
    read = _deepest(at for at, is_alive in enumerate(alive) if is_alive)
    needed = worthwhile(rules, life)
    write = _deepest(
        at
        for at, boundary in enumerate(boundaries)
        if boundary.tokens >= max(rules.min_tokens, 1) and chances[at] >= needed
    )
    write = _affordable(boundaries, read, write, rules, life, learned, total_tokens)
    places = _places(boundaries, chances, read, write, room, rules.min_tokens, alive)
    return _plan(boundaries, places, read, write, life, rules)


def _alive(record: Record, now_s: float, life_s: float | None) -> bool:
    if record.written_at_s is None:
        return False
    return life_s is None or now_s - record.written_at_s <= life_s


def _deepest(places: Iterable[int]) -> int:
    return max(places, default=-1)


def _chances(boundaries: Sequence[Boundary], learned: Learned) -> list[float]:
    """Return the chance of reuse at each boundary: never more than at a shallower one."""
    chances, least = [], 1.0
    for boundary in boundaries:
        least = min(least, learned.chance(bucket_of(boundary)))
        chances.append(least)
    return chances


def _affordable(
    boundaries: Sequence[Boundary],
    read: int,
    write: int,
    rules: CacheRules,
    life: Lifetime,
    learned: Learned,
    total_tokens: int,
) -> int:
    """Return the deepest write that past savings can pay for.

    What marks may lose is bounded by the price of one prompt and a twentieth of a percent.
    """
    requests, tokens = learned.requests + 1, learned.tokens + total_tokens
    saved = (1.0 - rules.read) * learned.read_tokens
    saved -= (life.write - 1.0) * learned.written_tokens
    purse = saved + tokens / requests + _ALLOWANCE * tokens
    base = boundaries[read].tokens if read >= 0 else 0
    while write > read and (life.write - 1.0) * (boundaries[write].tokens - base) > purse:
        write -= 1
    if write >= 0 and boundaries[write].tokens < rules.min_tokens:
        return -1
    return write


def _places(
    boundaries: Sequence[Boundary],
    chances: Sequence[float],
    read: int,
    write: int,
    room: int,
    min_tokens: int,
    alive: Sequence[bool],
) -> tuple[int, ...]:
    """Return the boundaries to mark: the one read, the deepest write, and the best between."""
    if write <= read:
        return (read,) if read >= 0 else ()
    chosen = {write} if room == 1 or read < 0 else {read, write}
    free = [at for at in range(read + 1, write) if boundaries[at].tokens >= min_tokens]
    ends = {at for at, is_alive in enumerate(alive) if is_alive} | chosen
    while len(chosen) < room and free:
        best = max(free, key=lambda at: (_expected(boundaries, chances, ends | {at}), at))
        free.remove(best)
        chosen.add(best)
        ends.add(best)
    return tuple(sorted(chosen))


def _expected(boundaries: Sequence[Boundary], chances: Sequence[float], ends: set[int]) -> float:
    """Return the tokens that a later request is expected to read, given where entries end."""
    total, tokens = 0.0, 0
    for at, boundary in enumerate(boundaries):
        if at in ends:
            tokens = boundary.tokens
        beyond = chances[at + 1] if at + 1 < len(chances) else 0.0
        total += (chances[at] - beyond) * tokens
    return total


def _plan(
    boundaries: Sequence[Boundary],
    places: Sequence[int],
    read: int,
    write: int,
    life: Lifetime,
    rules: CacheRules,
) -> MarkPlan:
    ttl_s = life.seconds if life is not rules.lifetimes[0] else None
    read_tokens = boundaries[read].tokens if read >= 0 else 0
    written = boundaries[write].tokens - read_tokens if write > read else 0
    return MarkPlan(
        breakpoints=tuple(Breakpoint(block=at - 1, ttl_s=ttl_s) for at in places),
        read_tokens=read_tokens,
        written_tokens=max(0, written),
        lifetime=life,
        reason="" if places else "a write would not pay",
    )


def note_sent(
    boundaries: Sequence[Boundary],
    plan: MarkPlan,
    *,
    learned: Learned,
    total_tokens: int,
    now_s: float = 0.0,
) -> None:
    """Note that a prompt was sent with these marks, and what its blocks teach."""
    life_s = believed_life_s(plan.lifetime, learned)
    for boundary in boundaries:
        learned.visit(boundary, now_s, life_s)
    for mark in plan.breakpoints:
        boundaries[mark.block + 1].record.written_at_s = now_s
    learned.requests += 1
    learned.tokens += total_tokens
    learned.read_tokens += plan.read_tokens
    learned.written_tokens += plan.written_tokens
