"""What a lookup in Postgres costs beside a bare transaction, and whether it finds the nearest.

python -m pytest -m prove -s tests/benchmarks/test_answer_store.py
"""

from __future__ import annotations

import os

import pytest

from ragcache.store.roles import Dsns
from tests.crowds import Crowd, costs, crowded, p50_ms, recall, searching, sizes
from tests.fixtures_postgres import initialise_for_tests


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


@pytest.mark.prove
@pytest.mark.timeout(1800)
async def test_half_precision_finds_the_same_in_half_the_space(
    create_database, template_database, record_property
):
    """Both in one run, asked in turns."""
    crowd = Crowd(large=50_000, small=50, others=1_000, index_at=5_000)
    stores, calls, found, size = [], {}, {}, {}
    for name, halfvec in (("vector", False), ("halfvec", True)):
        dsns = initialise_for_tests(create_database(template=template_database))
        store, large, small = await crowded(dsns, crowd, halfvec=halfvec)
        stores.append(store)
        calls[name] = searching(store, "large", large)
        found[name] = (
            await recall(store, "small", small, 150),
            await recall(store, "large", large, 500),
        )
        size[name] = sizes(dsns)
    await p50_ms(calls, 50)
    rounds = [await p50_ms(calls, 200) for _ in range(3)]
    times = sorted(taken["halfvec"] / taken["vector"] for taken in rounds)
    ratios = {part: size["halfvec"][part] / size["vector"][part] for part in size["vector"]}
    for name, value in (ratios | {"time": times[1]}).items():
        record_property(name, value)
    print(f"load {os.getloadavg()[0]:.1f}; recall@1 of 50 and of 50,000: {found}")
    print(f"bytes: {size}; ratios: {ratios}; time ratios {times}; p50 ms: {rounds}")
    for of_small, of_large in found.values():
        assert of_small == 1.0
        assert of_large >= 0.99
    assert ratios["vectors"] < 0.52
    assert ratios["graph"] < 0.75
    assert times[1] < 1.2, "half precision is not slower"
    for store in stores:
        await store.close()
