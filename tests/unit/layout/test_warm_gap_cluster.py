"""Hot prefixes, causes of gaps, and cache keys."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from ragcache.layout import (
    Clusters,
    HotPrompts,
    LayoutPolicy,
    PrefixForest,
    Rollout,
    Served,
    arrange,
    cause_of_gap,
    learn_life,
)
from ragcache.layout.breakpoints import Learned
from ragcache.layout.plan import Plan, Step
from ragcache.layout.warm import from_json, to_json
from ragcache.providers import find_rules
from ragcache.types import Document, Message, Request

POLICY = LayoutPolicy(min_prefix_tokens=0)
DOCS = [Document(text=f"text {n} " * 20, source=f"d{n}") for n in range(5)]
OPENAI = find_rules("openai", "gpt-5.5")
CLAUDE = find_rules("anthropic", "claude-sonnet-4-5")


def sent(*picks, table: HotPrompts | None = None):
    forest = PrefixForest()
    table = HotPrompts() if table is None else table
    for pick in picks:
        request = Request(
            tenant="t", system="S", question="Why?", documents=tuple(DOCS[at] for at in pick)
        )
        layout = arrange(request, policy=POLICY, tree=forest.tree("g"))
        forest.remember("g", layout.plan)
        table.note("g", request, layout)
    return forest.tree("g").tree, table


def test_the_prefix_that_saved_most_is_the_hottest_as_deep_as_it_was_repeated():
    tree, table = sent((0, 1, 2), (0, 1, 3), (0, 1, 2), (4,))
    hottest = table.hottest("g", tree, limit=5)
    assert [document.source for document in hottest[0].documents] == ["d0", "d1", "d2"]
    assert hottest[0].visits == 2
    assert all(prefix.visits > 1 for prefix in hottest)


def test_a_warm_up_is_bounded_in_number_and_in_tokens():
    tree, table = sent((0, 1), (0, 1), (2, 3), (2, 3))
    assert len(table.hottest("g", tree, limit=1)) == 1
    tokens = table.hottest("g", tree, limit=1)[0].tokens
    assert len(table.hottest("g", tree, limit=9, max_tokens=tokens)) == 1


def test_a_hot_prefix_is_sent_under_the_new_system_text_without_a_question():
    tree, table = sent((0, 1), (0, 1))
    [hot] = table.hottest("g", tree, limit=1)
    like = Request(tenant="t", question="x", history=(Message(role="user", content="y"),))
    request = hot.request(like, system="new")
    layout = arrange(request, policy=LayoutPolicy(ordering="retrieved"))
    assert (request.system, request.question, request.history) == ("new", "", ())
    assert [block.sources[0] for block in layout.blocks] == ["d0", "d1"]
    asked = arrange(request.replace(question="Why?"), policy=LayoutPolicy(ordering="retrieved"))
    assert asked.messages[1].text().startswith(layout.messages[1].text())


def test_the_table_of_hot_prompts_is_bounded():
    table = HotPrompts(max_entries=2)
    sent((0,), (1,), (2,), (3,), table=table)
    assert len(table) == 2
    small = HotPrompts(max_characters=10)
    sent((0,), table=small)
    assert len(small) == 0


def test_a_new_version_is_answered_without_cache_until_it_is_warm():
    rollout = Rollout(version="v2", wanted=2)
    assert not rollout.uses_cache("v2")
    assert rollout.uses_cache("v1")
    rollout = rollout.after_sending().after_sending(5)
    assert rollout.warm
    assert rollout.uses_cache("v2")
    assert Rollout(version="v2", wanted=0).uses_cache("v2")


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"served_tokens": None}, "unknown"),
        ({"predicted_tokens": None}, "unknown"),
        ({"served_tokens": 1990}, ""),
        ({"served_tokens": 4000}, "more than predicted"),
        ({"other_salt": True}, "salt"),
        ({"predicted_tokens": 500, "rules": OPENAI}, "under minimum"),
        ({"rules": CLAUDE, "marked": False}, "not marked"),
        ({"rules": CLAUDE, "idle_s": 4000.0}, "expired"),
        ({"rules": CLAUDE, "idle_s": 400.0}, "expired"),
        ({"rules": CLAUDE, "idle_s": 10.0}, "evicted"),
        ({"predicted_tokens": 0, "sent_tokens": 2000}, "evicted"),
        ({"predicted_tokens": 0, "sent_tokens": 0}, ""),
        ({"predicted_tokens": 0, "sent_tokens": 2000, "rules": CLAUDE, "idle_s": 4e3}, "expired"),
        ({"predicted_tokens": 0, "sent_tokens": 700, "rules": OPENAI}, "under minimum"),
        ({"mirrored": True}, "other replica"),
        ({"mirrored": True, "served_tokens": 512}, "evicted"),
        ({"mirrored": True, "served_tokens": 1999}, "evicted"),
        ({"mirrored": True, "predicted_tokens": 0, "sent_tokens": 2000}, "evicted"),
        ({}, "evicted"),
    ],
)
def test_the_cause_of_a_gap_is_named(facts, cause):
    call = Served(**{"predicted_tokens": 2000, "served_tokens": 0, **facts})
    assert cause_of_gap(call) == cause


def test_a_difference_below_a_block_is_rounding():
    call = Served(predicted_tokens=300, served_tokens=180, block_size=128)
    assert cause_of_gap(call) == ""


# --- how long entries really live ----------------------------------------------------------------


def learned_life(true_share: float, *, lost: float = 0.0, believed: float = 0.8) -> float:
    """Believed share of the lifetime after 300 requests to a provider that keeps less, or more."""
    drawn, learned = random.Random(1), Learned(life_share=believed)
    for _ in range(300):
        idle_s = drawn.uniform(0, 1.3) * 300
        held = idle_s <= true_share * 300 and drawn.random() >= lost
        call = Served(
            predicted_tokens=2000,
            served_tokens=2000 if held else 0,
            sent_tokens=2000,
            rules=CLAUDE,
            idle_s=idle_s,
        )
        learn_life(learned, call)
    return learned.life_share


@pytest.mark.parametrize("true_share", [0.4, 0.6, 0.8, 1.0])
def test_the_believed_lifetime_is_corrected_by_what_is_served(true_share):
    assert learned_life(true_share) == pytest.approx(true_share, abs=0.12)


def test_what_is_lost_soon_says_nothing_of_the_lifetime():
    learned = Learned()
    call = Served(
        predicted_tokens=2000, served_tokens=0, sent_tokens=2000, rules=CLAUDE, idle_s=10.0
    )
    for _ in range(50):
        learn_life(learned, call)
    assert learned.life_share == 0.8
    learn_life(learned, replace(call, idle_s=150.0))  # control: half the lifetime does
    assert learned.life_share < 0.8


@pytest.mark.parametrize(
    "facts",
    [
        {"rules": None},
        {"served_tokens": None},
        {"idle_s": None},
        {"other_salt": True},
        {"marked": False},
        {"sent_tokens": 100},
    ],
)
def test_nothing_is_learned_from_calls_that_could_not_have_been_served(facts):
    learned = Learned()
    known = {"sent_tokens": 2000, "served_tokens": 0, "rules": CLAUDE, "idle_s": 150.0, **facts}
    learn_life(learned, Served(predicted_tokens=2000, **known))
    assert learned.life_share == 0.8


# --- hot prefixes at rest ------------------------------------------------------------------------


def test_hot_prefixes_come_back_from_the_store_as_they_were():
    tree, table = sent((0, 1, 2), (0, 1, 3), (0, 1, 2))
    hottest = table.hottest("g", tree, limit=5)
    again = from_json(json.loads(json.dumps(to_json(hottest))))
    assert [(p.system, p.tokens, p.visits) for p in again] == [
        (p.system, p.tokens, p.visits) for p in hottest
    ]
    assert [[d.text for d in p.documents] for p in again] == [
        [d.text for d in p.documents] for p in hottest
    ]
    assert from_json({"v": 2}) == ()


def test_each_trust_group_has_its_own_hottest_and_changed_documents_are_in_none():
    tree, table = sent((0, 1), (0, 1), (2, 3), (2, 3))
    assert table.hottest("other", tree, limit=5) == ()
    table.forget(["d0"])
    [left] = table.hottest("g", tree, limit=5)
    assert [document.source for document in left.documents] == ["d2", "d3"]


# --- cache keys ----------------------------------------------------------------------------------


def plan(*names: str) -> Plan:
    head, *rest = [Step(key=name, tokens=10) for name in ("h", *names)]
    return Plan(head=head, steps=tuple(rest))


def keys(plans, *, every_s: float, salt: str = "s", rules=OPENAI) -> list[str | None]:
    clusters = Clusters()
    return [
        clusters.key(one, rules=rules, salt=salt, now_s=at * every_s)
        for at, one in enumerate(plans)
    ]


def test_requests_that_begin_alike_share_a_key_while_that_is_rarely_enough():
    assert len(set(keys([plan("a", str(at)) for at in range(50)], every_s=10))) == 1


def test_a_hot_head_is_split_by_what_follows_it():
    plans = [plan("ab"[at % 2], "x") for at in range(40)]
    found = keys(plans, every_s=2)
    late = set(found[20:40:2]), set(found[21:40:2])
    assert not late[0] & late[1]


def test_a_prefix_too_hot_for_one_key_is_spread_under_the_providers_rate():
    found = keys([plan("a")] * 100, every_s=0.5)
    minute = found[:100]
    for key in set(minute):
        assert minute.count(key) <= 2 * OPENAI.requests_per_key_minute
    assert len(set(minute)) > 3


def test_trust_groups_never_share_a_key_and_a_key_names_nobody():
    one = keys([plan("a")], every_s=1, salt="tenant-a")[0]
    two = keys([plan("a")], every_s=1, salt="tenant-b")[0]
    assert one != two
    assert one is not None
    assert "tenant" not in one
    assert len(one) == 32


def test_a_provider_without_keys_gets_none():
    assert keys([plan("a")], every_s=1, rules=CLAUDE) == [None]
    assert keys([plan("a")], every_s=1, rules=None) == [None]


def test_the_table_of_rates_is_bounded():
    clusters = Clusters(max_prefixes=5)
    for at in range(50):
        clusters.key(plan(str(at)), rules=OPENAI, salt=str(at), now_s=0.0)
    assert len(clusters._rates) <= 5
