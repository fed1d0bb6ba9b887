"""Schedules: every request once, every block once, and shared blocks in front."""

from __future__ import annotations

import random

import pytest

from ragcache.bench.simulation import PrefixCache
from ragcache.layout import LayoutPolicy, schedule
from ragcache.layout import batch as batch_module
from ragcache.layout.ordering import Item
from ragcache.types import Fingerprint


def items(names, tokens: int = 10) -> list[Item]:
    return [Item(Fingerprint(str(name)), tokens) for name in names]


def printed(batch, slots) -> list[list[str]]:
    return [[str(batch[s.request][at].key) for at in s.order] for s in slots]


def reused(sequences) -> int:
    cache = PrefixCache()
    return sum(cache.serve([(name, 10) for name in names]) for names in sequences)


def random_batch(seed: int, count: int = 60) -> list[list[Item]]:
    rng = random.Random(seed)
    return [items(rng.sample(range(25), rng.randrange(1, 8))) for _ in range(count)]


@pytest.mark.parametrize("seed", range(5))
def test_a_schedule_is_a_permutation_of_requests_and_of_their_blocks(seed):
    batch = random_batch(seed)
    slots = schedule(batch)
    assert sorted(slot.request for slot in slots) == list(range(len(batch)))
    for slot in slots:
        assert sorted(slot.order) == list(range(len(batch[slot.request])))


@pytest.mark.parametrize("seed", range(5))
def test_a_schedule_reuses_more_than_the_retrieval_order(seed):
    batch = random_batch(seed)
    as_retrieved = [[str(item.key) for item in request] for request in batch]
    assert reused(printed(batch, schedule(batch))) > 1.5 * reused(as_retrieved)


def test_requests_with_the_same_blocks_follow_each_other():
    batch = [items("abc"), items("xyz"), items("cab"), items("zyx")]
    slots = schedule(batch)
    numbers = [slot.request for slot in slots]
    assert abs(numbers.index(0) - numbers.index(2)) == 1
    assert reused(printed(batch, slots)) == 60


def test_a_schedule_keeps_its_reuse_in_a_cache_of_one_prompt():
    batch = random_batch(1)
    sequences = printed(batch, schedule(batch))
    small = PrefixCache(capacity_tokens=90)
    in_small = sum(small.serve([(name, 10) for name in names]) for names in sequences)
    assert in_small == reused(sequences)


def test_pins_and_limits_hold_in_a_schedule():
    batch = random_batch(2)
    for slot in schedule(batch, policy=LayoutPolicy(pin_top=1)):
        assert slot.order[-1] == 0
    for slot in schedule(batch, policy=LayoutPolicy(max_displacement=1)):
        assert all(abs(at - place) <= 1 for place, at in enumerate(slot.order))


def test_a_dense_batch_is_compared_with_the_newest_only_and_stays_a_permutation(monkeypatch):
    monkeypatch.setattr(batch_module, "_DENSE", 0)
    monkeypatch.setattr(batch_module, "_NEWEST", 2)
    batch = random_batch(3)
    slots = schedule(batch)
    assert sorted(slot.request for slot in slots) == list(range(len(batch)))


def test_nothing_to_schedule_is_an_empty_schedule():
    assert schedule([]) == ()
    assert [slot.order for slot in schedule([[], items("a")])] in ([(), (0,)], [(0,), ()])
