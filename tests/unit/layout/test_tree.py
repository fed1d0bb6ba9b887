"""Bounded trees: what they hold, what they let go, and in which order."""

from __future__ import annotations

import random

import pytest

from ragcache.layout import PrefixForest, SentBefore
from ragcache.layout.engine import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EngineMirror,
    block_chain,
)
from ragcache.layout.plan import Part, Plan, Step
from ragcache.layout.statistics import CoRetrieval
from ragcache.layout.tree import PrefixTree
from ragcache.providers import find_rules
from ragcache.types import Fingerprint, Layout


def steps(names: str, tokens: int = 10) -> list[Step]:
    return [Step(key=Fingerprint(n), tokens=tokens, names=(f"doc-{n}",)) for n in names]


def found(tree: PrefixTree, names: str) -> int:
    return len(tree.find(map(Fingerprint, names)))


def test_a_sequence_is_found_as_far_as_it_was_sent():
    tree = PrefixTree()
    tree.insert(steps("abc"))
    assert [found(tree, names) for names in ("abc", "abd", "bc", "abcd")] == [3, 2, 0, 3]


def test_tokens_and_nodes_stay_within_their_bounds():
    tree = PrefixTree(max_nodes=7, max_tokens=60)
    for start in range(50):
        tree.insert(steps("".join(chr(97 + (start + at) % 26) for at in range(4))))
        assert len(tree) <= 7
        assert tree.tokens <= 60


def test_the_least_recently_used_end_goes_first_never_a_middle():
    tree = PrefixTree(max_tokens=40)
    tree.insert(steps("ab"))
    tree.insert(steps("cd"))
    tree.insert(steps("ab"))
    tree.insert(steps("ef"))
    assert (found(tree, "ab"), found(tree, "cd"), found(tree, "ef")) == (2, 0, 2)
    tree.insert(steps("g"))
    assert found(tree, "ab") == 1


def test_fifo_forgets_what_came_first_although_it_was_used():
    tree = PrefixTree(max_tokens=40, eviction="fifo")
    for names in ("ab", "cd", "ab", "ef"):
        tree.insert(steps(names))
    assert (found(tree, "ab"), found(tree, "cd")) == (0, 2)


def test_lfu_forgets_what_was_used_least():
    tree = PrefixTree(max_tokens=40, eviction="lfu")
    for names in ("ab", "ab", "cd", "ef"):
        tree.insert(steps(names))
    assert (found(tree, "ab"), found(tree, "cd")) == (2, 0)


def test_a_sequence_longer_than_the_bound_leaves_a_bounded_tree():
    tree = PrefixTree(max_tokens=25)
    tree.insert(steps("abcdef"))
    assert tree.tokens <= 25


@pytest.mark.parametrize("name", ["doc-b", "b"])
def test_a_changed_document_leaves_with_everything_behind_it(name):
    tree = PrefixTree()
    tree.insert(steps("abc"))
    tree.insert(steps("ad"))
    assert tree.forget([name]) == 2
    assert (found(tree, "abc"), found(tree, "ad")) == (1, 2)
    assert tree.tokens == 20


def test_the_forest_forgets_a_document_in_every_trust_group():
    forest = PrefixForest()
    for group in ("one", "two"):
        plan = Plan(head=steps("h")[0], steps=tuple(steps("ab")), ranked=("a", "b"))
        forest.remember(group, plan)
    assert forest.forget(["doc-a"]) == 4
    assert found(forest.tree("one").tree, "hab") == 1


def test_the_forest_keeps_a_bounded_number_of_trust_groups():
    forest = PrefixForest(max_entries=3)
    for group in range(10):
        forest.tree(str(group))
    assert len(forest) == 3


def test_all_trees_together_hold_a_bounded_number_of_nodes():
    forest = PrefixForest(max_entries=10, max_nodes=20, max_blocks_per_entry=2)
    for number in range(50):
        forest.remember(str(number), Plan(head=steps("h")[0], steps=tuple(steps("abc"))))
        groups = [forest.find(str(at)) for at in range(50)]
        assert sum(len(group.tree) for group in groups if group is not None) <= 20
    assert forest.find("49") is not None


def test_a_restarted_engine_empties_the_trees_and_not_what_is_retrieved_together():
    forest = PrefixForest()
    forest.remember("g", Plan(head=steps("h")[0], steps=tuple(steps("ab")), ranked=("a", "b")))
    forest.clear()
    assert found(forest.tree("g").tree, "hab") == 0
    assert len(forest.tree("g").tree) == 0
    assert len(forest.tree("g").statistics) == 1


def test_documents_that_changed_leave_the_statistics_under_all_their_names():
    forest = PrefixForest()
    plan = Plan(
        head=steps("h")[0],
        steps=tuple(steps("ab")),
        ranked=("a", "b"),
        names={"a": ("doc-a", "path/a")},
    )
    forest.remember("g", plan)
    statistics = forest.tree("g").statistics
    assert statistics.shared(["a"])[1].sum() == 1
    forest.forget(["path/a"])
    assert statistics.shared(["a"])[1].sum() == 0
    assert statistics.shared(["b"])[1].sum() == 1


def test_the_lifetime_follows_the_provider_and_what_was_learned_of_it():
    forest, claude = PrefixForest(), find_rules("anthropic", "claude-sonnet-4-5")
    assert forest.tree("g", rules=claude).tree.lifetime_s == pytest.approx(240)
    forest.tree("g").learned.life_share = 0.5
    assert forest.tree("g", rules=claude).tree.lifetime_s == pytest.approx(150)
    assert forest.tree("other").tree.lifetime_s is None


def test_what_was_sent_before_is_known_with_its_age_whatever_became_of_it():
    forest, claude = PrefixForest(), find_rules("anthropic", "claude-sonnet-4-5")
    plan = Plan(head=steps("h")[0], steps=tuple(steps("ab")))
    tree = forest.tree("g", rules=claude)
    assert tree.sent_before(plan, now_s=0.0) == SentBefore()
    forest.remember("g", plan, now_s=100.0)
    before = tree.sent_before(plan, now_s=5000.0)
    assert (before.tokens, before.idle_s) == (plan.head.tokens + 20, 4900.0)


def test_co_retrieval_remembers_its_last_requests_only():
    statistics = CoRetrieval(max_requests=8)
    for _ in range(20):
        statistics.add(map(Fingerprint, "ab"))
    for _ in range(8):
        statistics.add(map(Fingerprint, "cd"))
    assert statistics.shared([Fingerprint("a")])[1].sum() == 0
    held, requests = statistics.shared(list(map(Fingerprint, "cd")))
    assert (held.tolist(), requests.tolist()) == ([[1.0], [1.0]], [8.0])
    statistics.forget([Fingerprint("c")])
    assert statistics.shared([Fingerprint("c")])[1].sum() == 0


@pytest.mark.parametrize("blocks", [3, 10, 14, 15, 20, 40])
def test_sets_that_requests_held_are_counted_whatever_their_size(blocks):
    drawn = random.Random(blocks)
    statistics, names = CoRetrieval(max_requests=50), [Fingerprint(str(n)) for n in range(blocks)]
    requests = [drawn.sample(names, drawn.randint(0, blocks)) for _ in range(80)]
    for request in requests:
        statistics.add(request)
    held, counts = statistics.shared(names)
    for at, name in enumerate(names):
        assert held[at] @ counts == sum(name in request for request in requests[-50:])
    assert counts.sum() == sum(bool(request) for request in requests[-50:])


def test_the_share_of_blocks_that_come_back_follows_the_traffic():
    statistics = CoRetrieval()
    for number in range(100):
        statistics.add([Fingerprint(f"new {number}")])
    assert statistics.returning < 0.05
    for _ in range(100):
        statistics.add([Fingerprint("again")])
    assert statistics.returning > 0.9


def test_the_difference_from_the_previous_prompt_of_the_group_is_told():
    forest = PrefixForest()

    def layout(system: str) -> Layout:
        parts = (Part(name="system message", text=system),)
        return Layout(messages=(), plan=Plan(head=steps("h")[0], parts=parts))

    first = layout("Now: 09:14:07")
    assert forest.tree("g").difference(first) is None
    forest.remember("g", first.plan)
    difference = forest.tree("g").difference(layout("Now: 09:15:08"))
    assert difference is not None
    assert (difference.part, difference.offset) == ("system message", 9)
    assert "system message, byte 9" in str(difference)


# --- the engine's own events ---------------------------------------------------------------------


def stored(tokens: range, names: range, parent: int | None = None, salt: str = "") -> BlockStored:
    return BlockStored(
        block_hashes=tuple(names),
        parent_block_hash=parent,
        token_ids=tuple(tokens),
        block_size=4,
        extra_keys=((salt,),) if salt else (),
    )


def test_the_mirror_tells_what_a_prompt_will_find():
    mirror = EngineMirror()
    assert mirror.cached_tokens(range(12)) == 0
    mirror.apply(stored(range(8), range(100, 102)))
    mirror.apply(stored(range(8, 12), range(102, 103), parent=101))
    assert mirror.cached_tokens(range(16)) == 12
    assert mirror.cached_tokens([*range(8), 99, 99, 99, 99, 99]) == 8
    assert mirror.cached_tokens(range(1, 12)) == 0


def test_the_last_token_of_a_prompt_is_always_computed():
    mirror = EngineMirror()
    mirror.apply(stored(range(8), range(2)))
    assert mirror.cached_tokens(range(8)) == 4


def test_evicted_blocks_are_gone_and_a_reset_clears_all():
    mirror = EngineMirror()
    mirror.apply(stored(range(12), range(3)))
    mirror.apply(BlockRemoved(block_hashes=(2, 77)))
    assert mirror.cached_tokens(range(13)) == 8
    mirror.apply(AllBlocksCleared())
    assert (mirror.cached_tokens(range(13)), len(mirror)) == (0, 0)


def test_another_salt_finds_nothing():
    mirror = EngineMirror()
    mirror.apply(stored(range(8), range(2), salt="one"))
    assert mirror.cached_tokens(range(9), salt="one") == 8
    assert mirror.cached_tokens(range(9), salt="two") == 0
    assert mirror.cached_tokens(range(9)) == 0


def test_blocks_whose_beginning_was_missed_are_counted_not_guessed():
    mirror = EngineMirror()
    mirror.apply(stored(range(4, 8), range(1), parent=55))
    assert (mirror.orphans, len(mirror)) == (1, 0)


def test_a_block_stored_under_two_names_stays_until_both_are_gone():
    mirror = EngineMirror()
    mirror.apply(stored(range(4), range(1)))
    mirror.apply(stored(range(4), range(9, 10)))
    mirror.apply(BlockRemoved(block_hashes=(0,)))
    assert mirror.cached_tokens(range(5)) == 4


def test_the_tree_follows_only_what_the_engine_still_holds():
    tree = PrefixTree()
    tree.held = mirror = EngineMirror()
    tree.insert(steps("ab"))
    mirror.apply(stored(range(12), range(3)))
    chain = block_chain(range(12), 4)
    tree.note_engine([Fingerprint("a"), Fingerprint("b")], [5, 11], chain, block_size=4)
    a, b = tree.find(map(Fingerprint, "ab"))
    assert tree.alive(a, 0.0)
    assert tree.alive(b, 0.0)
    mirror.apply(BlockRemoved(block_hashes=(1,)))
    assert tree.alive(a, 0.0)
    assert not tree.alive(b, 0.0)


def test_a_group_notes_where_its_prompts_stand_by_its_own_share_of_the_tokens():
    tree = PrefixForest().tree("g")
    plan = Plan(head=steps("h")[0], steps=tuple(steps("ab")), total_tokens=40)
    tree.remember(plan)
    mirror = tree.tree.held = EngineMirror()
    mirror.apply(stored(range(80), range(20)))
    # 80 tokens by the engine's count, 40 by this side's: each block ends twice as far.
    tree.note_engine(plan, block_chain(range(80), 4), block_size=4, prompt_tokens=80)
    mirror.apply(BlockRemoved(block_hashes=tuple(range(10, 20))))
    head, a, b = tree.tree.find(map(Fingerprint, "hab"))
    assert [tree.tree.alive(node, 0.0) for node in (head, a, b)] == [True, True, False]
