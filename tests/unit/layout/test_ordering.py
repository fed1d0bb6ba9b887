"""The order of the blocks: what was sent before goes first, within the limits that were set."""

from __future__ import annotations

import pytest

from ragcache.errors import ConfigError
from ragcache.layout import LayoutPolicy, PrefixForest
from ragcache.layout.ordering import Item, Knowledge, order_blocks, within
from ragcache.layout.plan import Plan, Step
from ragcache.layout.statistics import CoRetrieval
from ragcache.layout.tree import PrefixTree
from ragcache.layout.wording import Wording
from ragcache.types import Fingerprint

POLICY = LayoutPolicy(min_prefix_tokens=0)


def items(*names: str, tokens: int = 10) -> list[Item]:
    return [Item(Fingerprint(name), tokens) for name in names]


def steps(*names: str, tokens: int = 10) -> list[Step]:
    return [Step(key=Fingerprint(name), tokens=tokens) for name in names]


def known(*sent: str) -> Knowledge:
    knowledge = Knowledge(PrefixTree(), CoRetrieval())
    for names in sent:
        knowledge.tree.insert(steps(*names))
        knowledge.statistics.add(map(Fingerprint, names))
    return knowledge


def order(names: str, knowledge: Knowledge | None = None, policy: LayoutPolicy = POLICY) -> str:
    given = items(*names)
    start = knowledge.tree.root if knowledge else None
    places = order_blocks(given, policy=policy, known=knowledge, start=start)
    return "".join(str(given[at].key) for at in places)


def test_without_knowledge_the_retrieval_order_stays():
    assert order("cab") == "cab"


def test_sorted_needs_no_knowledge_and_does_not_depend_on_rank():
    policy = LayoutPolicy(ordering="sorted")
    assert order("cab", policy=policy) == order("bca", policy=policy) == "abc"


def test_retrieved_moves_nothing_whatever_was_sent():
    assert order("cab", known("abc"), LayoutPolicy(ordering="retrieved")) == "cab"


def test_a_known_sequence_goes_first():
    assert order("xbaz", known("ab"))[:2] == "ab"


def test_the_path_worth_most_tokens_wins_over_the_longer_one():
    knowledge = Knowledge(PrefixTree(), CoRetrieval())
    knowledge.tree.insert(steps("a", "b", "c", tokens=1))
    knowledge.tree.insert([Step(key=Fingerprint("d"), tokens=100)])
    given = [Item(Fingerprint(k), 100 if k == "d" else 1) for k in "abcd"]
    places = order_blocks(given, policy=POLICY, known=knowledge, start=knowledge.tree.root)
    assert places[0] == 3


def test_new_blocks_follow_by_what_was_retrieved_together():
    assert order("xya", known("pq", "ay", "ay", "ax"))[:2] == "ay"


def test_ties_go_to_the_better_rank():
    assert order("dcba", known("qr")) == "dcba"


def test_blocks_worded_alike_stand_together_before_any_statistics():
    texts = {
        "a": "harbour pilotage tariff northern berth",
        "b": "football league season goals striker",
        "c": "harbour pilotage tariff southern berth",
        "d": "sonata violin orchestra conductor",
    }
    knowledge = Knowledge(PrefixTree(), CoRetrieval(), Wording(max_new=10))
    given = [Item(Fingerprint(key), 10, text) for key, text in texts.items()]
    places = order_blocks(given, policy=POLICY, known=knowledge, start=knowledge.tree.root)
    chosen = "".join(str(given[at].key) for at in places)
    assert abs(chosen.index("a") - chosen.index("c")) == 1


def test_pinned_blocks_stand_last_the_best_one_nearest_the_question():
    policy = LayoutPolicy(pin_top=2, min_prefix_tokens=0)
    assert order("abxy", known("abxy"), policy)[-2:] == "ba"


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_no_block_stands_further_from_its_rank_than_the_limit(limit):
    policy = LayoutPolicy(max_displacement=limit, min_prefix_tokens=0)
    chosen = order("abcdef", known("fedcba"), policy)
    assert sorted(chosen) == list("abcdef")
    assert all(abs(chosen.index(name) - at) <= limit for at, name in enumerate("abcdef"))


def test_a_limit_that_binds_nothing_changes_nothing():
    assert within((2, 0, 1), 5) == (2, 0, 1)


def test_the_walk_gives_up_after_its_visits_and_keeps_the_best_path_so_far():
    names = "abcdefgh"
    knowledge = Knowledge(PrefixTree(), CoRetrieval())
    for first in names:
        knowledge.tree.insert(steps(first, *(n for n in names if n != first)))
    policy = LayoutPolicy(max_visits=3, min_prefix_tokens=0)
    assert sorted(order(names, knowledge, policy)) == list(names)


def test_blocks_that_were_written_count_more_where_only_those_are_found_again():
    knowledge = Knowledge(PrefixTree(), CoRetrieval(), marked=True)
    knowledge.tree.insert(steps("a", "b"))
    knowledge.tree.insert(steps("c"))
    knowledge.tree.find([Fingerprint("c")])[0].record.written_at_s = 0.0
    assert order("abc", knowledge)[0] == "c"


def test_expired_sequences_are_not_followed():
    knowledge = Knowledge(PrefixTree(lifetime_s=10.0), CoRetrieval())
    knowledge.tree.insert(steps("b", "a"), now_s=0.0)
    given = items("a", "b")
    fresh = order_blocks(
        given, policy=POLICY, known=knowledge, start=knowledge.tree.root, now_s=5.0
    )
    late = order_blocks(
        given, policy=POLICY, known=knowledge, start=knowledge.tree.root, now_s=50.0
    )
    assert (fresh, late) == ((1, 0), (0, 1))


def test_a_trust_group_never_learns_from_another():
    forest = PrefixForest()
    plan = Plan(head=steps("h")[0], steps=tuple(steps("b", "a")), ranked=("b", "a"))
    forest.remember("one", plan)
    assert forest.tree("one").tree.find(["h", "b", "a"])
    assert not forest.tree("two").tree.find(["h"])


@pytest.mark.parametrize(
    "bad",
    [
        {"ordering": "best"},
        {"pin_top": -1},
        {"max_displacement": -1},
        {"label_digits": 0},
        {"window_tokens": 0},
        {"align_blocks": True},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_name(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        LayoutPolicy(**bad)
