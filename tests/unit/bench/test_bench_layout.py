"""The replay of traces: its figures, its options, and its floors on public data."""

from __future__ import annotations

import json

import pytest

from ragcache.bench.layout import replay
from ragcache.bench.simulation import AutomaticCache, MarkedCache, PrefixCache
from ragcache.errors import ConfigError
from ragcache.layout import LayoutPolicy
from ragcache.layout.blocks import make_blocks
from ragcache.providers import find_rules
from ragcache.types import Document

OPENAI_NEW = find_rules("openai", "gpt-5.6")
OPENAI_OLD = find_rules("openai", "gpt-4o")
DEEPSEEK = find_rules("deepseek", "deepseek-chat")
CLAUDE = find_rules("anthropic", "claude-sonnet-4-5")


@pytest.fixture
def files(tmp_path):
    """Write a small trace; return the paths of documents and requests."""

    def write(requests, documents=None):
        documents = documents or {n: f"text {n} " * 20 for n in range(12)}
        docs, trace = tmp_path / "docs.jsonl", tmp_path / "trace.jsonl"
        docs.write_text(
            "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in documents.items())
        )
        trace.write_text("".join(json.dumps({"query": "q", "ids": ids}) + "\n" for ids in requests))
        return docs, trace

    return write


def test_the_result_has_the_promised_shape(files):
    result = replay(*files([[0, 1, 2], [2, 1, 0], [3, 1, 2]]))
    assert set(result) == {
        "policy", "k", "batch", "requests", "hit_rate", "hit_rate_bounded", "displacement", "ms",
        "relative_cost",
    }  # fmt: skip
    assert set(result["ms"]) == {"mean", "p50", "p99"}
    assert (result["policy"], result["k"], result["requests"]) == ("prefix_tree", 3, 3)
    assert {"openai-gpt-5.6", "anthropic-1024", "vllm"} <= set(result["relative_cost"])
    json.dumps(result)


def test_the_same_set_in_another_order_is_reused_by_the_tree_and_not_as_retrieved(files):
    paths = files([[0, 1, 2], [2, 1, 0]])
    assert replay(*paths, rules=())["hit_rate"] == pytest.approx(0.5)
    assert replay(*paths, policy="retrieved", rules=())["hit_rate"] == 0.0
    assert replay(*paths, policy="sorted", rules=())["hit_rate"] == pytest.approx(0.5)


def test_options_cut_and_shuffle_the_trace(files):
    paths = files([[n % 12, (n + 1) % 12, (n + 2) % 12] for n in range(12)])
    assert replay(*paths, k=2, rules=())["k"] == 2
    assert replay(*paths, limit=5, rules=())["requests"] == 5
    first = replay(*paths, shuffle=0, policy="retrieved", rules=())
    again = replay(*paths, shuffle=0, policy="retrieved", rules=())
    assert first["hit_rate"] == again["hit_rate"]


def test_limits_of_the_policy_reach_the_replay(files):
    paths = files([[0, 1, 2], [2, 1, 0], [1, 2, 0]])
    assert replay(*paths, max_displacement=0, rules=())["displacement"] == 0.0


def test_an_engine_computes_again_what_fills_no_whole_block(files):
    paths = files([[0, 1, 2], [0, 1, 2]])
    documents = [Document(text=f"text {n} " * 20, source=str(n)) for n in range(3)]
    blocks = make_blocks(documents, policy=LayoutPolicy())
    length = sum(len(block.text + "\n\n") // 4 for block in blocks)
    assert "computed" not in replay(*paths, rules=())
    for size in (1, 16, 10 * length):
        told = replay(*paths, rules=(), block_size=size)["computed"]
        assert told == pytest.approx((length + length % size) / (2 * length))


def test_documents_without_reuse_cost_what_they_cost_without_a_cache(files):
    documents = {n: f"unique {n} " * 300 for n in range(40)}
    requests = [[2 * n, 2 * n + 1] for n in range(20)]
    costs = replay(*files(requests, documents))["relative_cost"]
    assert costs["openai-gpt-5.6"] <= 1.002


@pytest.mark.parametrize(
    ("docs", "trace", "message"),
    [
        ('{"id": 0}', '{"ids": [0]}', "'text' is missing"),
        ('{"id": 0, "text": "a"}', '{"ids": [7]}', "document 7 is not in"),
        ('{"id": 0, "text": "a"}', "nonsense", "line 1: not JSON"),
    ],
)
def test_a_trace_with_a_fault_is_refused_with_its_place(tmp_path, docs, trace, message):
    (tmp_path / "d").write_text(docs)
    (tmp_path / "t").write_text(trace)
    with pytest.raises(ConfigError, match=message):
        replay(tmp_path / "d", tmp_path / "t")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        replay(tmp_path / "none", tmp_path / "none")


# --- the simulated caches, by hand ---------------------------------------------------------------


def test_a_prefix_cache_finds_prefixes_and_evicts_the_oldest_end():
    cache = PrefixCache(30)
    assert [cache.serve([("a", 10), ("b", 10)]) for _ in range(2)] == [0, 20]
    assert cache.serve([("a", 10), ("c", 10)]) == 10
    assert cache.serve([("d", 10)]) == 0
    assert cache.serve([("a", 10), ("b", 10)]) == 10


def test_marked_tokens_are_billed_as_written_once_and_as_read_afterwards():
    cache = MarkedCache(OPENAI_NEW)
    sequence = [("s", 1000), ("a", 1000)]
    cache.serve(sequence, [1], 2100)
    assert cache.bill.cost == pytest.approx(100 + 1.25 * 2000)
    cache.serve(sequence, [1], 2100)
    assert cache.bill.cost == pytest.approx(100 + 2500 + 100 + 200)
    cache.serve(sequence, [], 2100)
    assert cache.bill.cost == pytest.approx(100 + 2500 + 300 + 2100)


def test_an_unmarked_shorter_prefix_is_found_only_where_the_provider_looks_back():
    long, other = [("s", 1100), ("a", 1000)], [("s", 1100), ("b", 1000)]
    costs = {}
    for rules in (OPENAI_NEW, CLAUDE):
        cache = MarkedCache(rules)
        cache.serve(long, [0, 1], 2200)
        before = cache.bill.cost
        cache.serve(other, [1], 2200)
        costs[rules.provider] = cache.bill.cost - before
    assert costs["openai"] == pytest.approx(100 + 1.25 * 2100)
    assert costs["anthropic"] == pytest.approx(100 + 1.25 * 1000 + 0.1 * 1100)


def test_automatic_caches_round_down_and_have_a_minimum():
    cache = AutomaticCache(OPENAI_OLD)
    for _ in range(2):
        cache.serve([("s", 1100)], 1200)
    assert cache.bill.cost == pytest.approx(1200 + 1200 - 0.5 * 1024)
    small = AutomaticCache(OPENAI_OLD)
    for _ in range(2):
        small.serve([("s", 900)], 1000)
    assert small.bill.cost == pytest.approx(2000)


def test_units_are_found_from_the_third_request_on():
    cache, costs = AutomaticCache(DEEPSEEK), []
    for _ in range(3):
        before = cache.bill.cost
        cache.serve([("s", 1000)], 1000)
        costs.append(cache.bill.cost - before)
    assert costs == [pytest.approx(1000), pytest.approx(1000), pytest.approx(100)]


# --- floors on public data -----------------------------------------------------------------------


def _replayed(data_dir, name: str, **options):
    docs = data_dir / "prefix" / f"{name}.docs.jsonl"
    trace = data_dir / "prefix" / f"{name}.trace.jsonl"
    return replay(docs, trace, **options)


def test_the_tree_beats_the_retrieval_order_threefold_on_a_public_trace(data_dir):
    reordered = _replayed(data_dir, "xquad_en", shuffle=0, limit=400, rules=())
    retrieved = _replayed(data_dir, "xquad_en", shuffle=0, limit=400, policy="retrieved", rules=())
    assert reordered["hit_rate"] > 2.5 * retrieved["hit_rate"]


ONLINE = {
    "xquad_en": (0.345, 0.28, 0.73),
    "covidqa": (0.242, 0.152, 0.88),
    "nq_oracle": (0.225, 0, 0.94),
}


@pytest.mark.prove
@pytest.mark.parametrize("name", sorted(ONLINE))
def test_online_floors(data_dir, name):
    runs = [_replayed(data_dir, name, shuffle=seed, rules=(OPENAI_NEW,)) for seed in (0, 1, 2)]
    hit, bounded, cost = ONLINE[name]
    assert sum(run["hit_rate"] for run in runs) / 3 >= hit
    assert sum(run["hit_rate_bounded"] for run in runs) / 3 >= bounded
    assert sum(run["relative_cost"]["openai-gpt-5.6"] for run in runs) / 3 <= cost


@pytest.mark.prove
@pytest.mark.parametrize(
    ("name", "k", "options", "floor"),
    [
        ("xquad_en", 10, {"batch": True}, 0.43),
        ("covidqa", 10, {"batch": True}, 0.345),
        ("covidqa", 5, {"batch": True}, 0.365),
        ("xquad_en", 10, {"pin_top": 1, "shuffle": 0}, 0.30),
        ("covidqa", 10, {"pin_top": 1, "shuffle": 0}, 0.20),
        ("xquad_en", 10, {}, 0.335),
        ("covidqa", 10, {}, 0.230),
    ],
)
def test_batch_pinned_and_file_order_floors(data_dir, name, k, options, floor):
    assert _replayed(data_dir, name, k=k, rules=(), **options)["hit_rate"] >= floor
