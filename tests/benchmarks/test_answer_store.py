"""What a lookup in Postgres costs beside a bare transaction, and whether it finds the nearest.

python -m pytest -m prove -s tests/benchmarks/test_answer_store.py
"""

from __future__ import annotations

import os

import pytest

from ragcache.store.roles import Dsns
from tests.crowds import Crowd, costs, crowded, recall


@pytest.mark.prove
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("halfvec", [False, True], ids=["vector", "halfvec"])
async def test_fifty_among_a_hundred_thousand_and_fifty_thousand(
    fresh_database: Dsns, record_property, halfvec
):
    crowd = Crowd(large=50_000, small=50, others=50_000, index_at=5_000)
    store, large, small = await crowded(fresh_database, crowd, halfvec=halfvec)
    found = {
        "recall@1 of 50": await recall(store, "small", small, 150),
        "recall@1 of 50,000": await recall(store, "large", large, 500),
    }
    await costs(store, large, 50)
    rounds = [await costs(store, large, 200) for _ in range(3)]
    taken = min(rounds, key=lambda each: each["bare"])  # the round in which the machine was ours
    for name, value in (found | taken).items():
        record_property(name, value)
    print(f"load {os.getloadavg()[0]:.1f}; {found}; p50 ms of three rounds: {rounds}")
    assert found["recall@1 of 50"] == 1.0
    assert found["recall@1 of 50,000"] >= 0.99
    assert taken["exact"] <= taken["bare"] * 1.5
    assert taken["large"] <= taken["bare"] + 3.0
    await store.close()
