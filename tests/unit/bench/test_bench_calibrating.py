"""Thresholds from labelled pairs."""

from __future__ import annotations

from ragcache.bench.answers import Pair, pairs_of
from ragcache.bench.calibrating import as_json, from_pairs, halves
from tests.doubles.embedder import TableEmbedder

PAIRS = [
    Pair(stored="How do I cancel?", asked="how do I cancel", same=True, namespace="faq"),
    Pair(stored="Fee after 30 days?", asked="Fee after 90 days?", same=False, namespace="faq"),
    Pair(stored="怎么取消会员？", asked="如何取消会员", same=True, namespace="shop"),
    Pair(stored="Where is the office?", asked="where is the office", same=True, namespace="shop"),
]


def test_halves_share_no_question_and_nothing_that_hangs_together() -> None:
    chain = [Pair(stored=f"q{n}", asked=f"q{n + 1}", same=True) for n in range(5)]
    loose = [Pair(stored=f"a{n}", asked=f"b{n}", same=False) for n in range(40)]
    first, second = halves([*chain, *loose])
    assert len(first) + len(second) == 45
    assert len(first) > 8
    assert len(second) > 8
    texts = [{text for p in half for text in (p.stored, p.asked)} for half in (first, second)]
    assert not texts[0] & texts[1]
    assert all(p in first for p in chain) or all(p in second for p in chain)


def test_each_namespace_and_language_gets_a_threshold_of_its_own() -> None:
    whole, found = from_pairs(PAIRS, TableEmbedder(), error=0.5)
    assert set(found) == {("faq", "en"), ("shop", "en"), ("shop", "zh")}
    plain = as_json(whole, found)
    assert [(p["namespace"], p["language"]) for p in plain["parts"]] == sorted(found)
    assert all(part["certified"] == "not certified" for part in plain["parts"])


def test_a_row_may_name_its_namespace() -> None:
    assert pairs_of([{"a": "x", "b": "y", "same": True, "namespace": "faq"}])[0].namespace == "faq"
    assert pairs_of([{"cached": "x", "query": "y", "reuse": True}])[0].namespace == ""
