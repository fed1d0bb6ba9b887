"""Marks: only where they pay, never more than allowed, lifetimes in the provider's order."""

from __future__ import annotations

import random

import pytest

from ragcache.layout import (
    LayoutPolicy,
    PrefixForest,
    arrange,
    caller_marks,
    marked,
    parted,
    plan_breakpoints,
)
from ragcache.layout.breakpoints import Boundary, Learned, note_sent, plan_marks, worthwhile
from ragcache.layout.marks import seconds_of
from ragcache.layout.plan import Plan
from ragcache.layout.rules import Lifetime
from ragcache.layout.tree import Record
from ragcache.providers import find_rules
from ragcache.types import Breakpoint, Document, Message, Request

OPENAI = find_rules("openai", "gpt-5.6")
CLAUDE = find_rules("anthropic", "claude-sonnet-4-5")
POLICY = LayoutPolicy(ordering="retrieved", min_prefix_tokens=0)
DOCS = tuple(Document(text=f"document {n} " + "word " * 800, source=f"d{n}") for n in range(6))


def request(documents=DOCS, **fields) -> Request:
    return Request(**{"tenant": "t", "question": "Why?", "documents": documents, **fields})


def boundaries(*tokens: int, records: list[Record] | None = None) -> list[Boundary]:
    records = records or [Record() for _ in tokens]
    return [Boundary(tokens=t, record=r) for t, r in zip(tokens, records, strict=True)]


def test_a_write_pays_from_the_chance_that_fee_and_gain_give():
    assert worthwhile(OPENAI, OPENAI.lifetimes[0]) == pytest.approx(0.25 / 1.15)
    assert worthwhile(CLAUDE, CLAUDE.lifetimes[1]) == pytest.approx(1 / 1.9)
    free = find_rules("bedrock", "amazon.nova-pro-v1:0")
    assert worthwhile(free, free.lifetimes[0]) == 0.0


def test_nothing_is_marked_while_nothing_was_ever_repeated():
    plan = plan_marks(
        boundaries(600, 2000, 4000), rules=OPENAI, learned=Learned(), total_tokens=4030
    )
    assert plan.breakpoints == ()
    assert plan.reason == "a write would not pay"


def repeat(times: int, learned: Learned, records: list[Record], *, idle_s: float = 1.0):
    plans = []
    for at in range(times):
        places = boundaries(600, 2000, 4000, records=records)
        now_s = at * idle_s
        plan = plan_marks(places, rules=OPENAI, learned=learned, total_tokens=4030, now_s=now_s)
        note_sent(places, plan, learned=learned, total_tokens=4030, now_s=now_s)
        plans.append(plan)
    return plans


def test_what_repeats_is_written_and_then_only_read():
    plans = repeat(8, Learned(), [Record() for _ in range(3)])
    first = next(at for at, plan in enumerate(plans) if plan.breakpoints)
    assert plans[first].breakpoints[-1].block == 1
    assert plans[first].written_tokens == 4000
    for plan in plans[first + 1 :]:
        assert plan.breakpoints == (Breakpoint(block=1),)
        assert (plan.read_tokens, plan.written_tokens) == (4000, 0)


def test_a_boundary_below_the_minimum_is_never_marked():
    for plan in repeat(8, Learned(), [Record() for _ in range(3)]):
        assert all(mark.block >= 0 for mark in plan.breakpoints)


def test_an_entry_past_its_life_is_not_expected_to_be_read():
    learned, records = Learned(), [Record() for _ in range(3)]
    repeat(8, learned, records)
    places = boundaries(600, 2000, 4000, records=records)
    plan = plan_marks(places, rules=OPENAI, learned=learned, total_tokens=4030, now_s=1e6)
    assert plan.read_tokens == 0


def test_random_traffic_never_costs_more_than_a_prompt_and_a_twentieth_of_a_percent():
    rng, learned, records = random.Random(0), Learned(), {}
    fees = tokens = 0.0
    for at in range(3000):
        path = tuple(rng.randrange(400) for _ in range(5))
        places, length = [], 600
        for depth in range(6):
            record = records.setdefault(path[:depth], Record())
            places.append(Boundary(tokens=length, record=record, support=0))
            length += 700
        plan = plan_marks(places, rules=OPENAI, learned=learned, total_tokens=length, now_s=at)
        note_sent(places, plan, learned=learned, total_tokens=length, now_s=at)
        fees += 0.25 * plan.written_tokens - 0.9 * plan.read_tokens
        tokens += length
        assert fees <= 2 * length + 0.001 * tokens
    assert 1 + fees / tokens <= 1.002


def test_a_model_that_is_not_listed_gets_no_marks():
    layout = arrange(request(), policy=POLICY)
    plan = plan_breakpoints(layout, rules=None, tree=PrefixForest().tree("g"))
    assert plan.breakpoints == ()
    assert "not known" in plan.reason


def planned(layout, *, rules=CLAUDE, mode="always", **fields):
    return plan_breakpoints(layout, rules=rules, tree=PrefixForest().tree("g"), mode=mode, **fields)


def mark(**fields) -> dict:
    return {"cache_control": {"type": "ephemeral", **fields}}


def part(text: str, **fields) -> dict:
    return {"type": "text", "text": text, **fields}


def test_marks_are_found_on_tools_and_parts_but_not_in_a_schema():
    tools = (
        {"name": "a", "input_schema": {"properties": {"cache_control": {"type": "boolean"}}}},
        {"name": "b", **mark(ttl="1h")},
    )
    messages = (Message(role="system", content=(part("S", **mark()),)),)
    found = caller_marks(messages, tools)
    assert [(m.message, m.part, m.ttl_s) for m in found] == [(-1, 1, 3600), (0, 0, None)]


@pytest.mark.parametrize(
    ("ttl", "seconds"), [("5m", 300), ("1h", 3600), ("30s", 30), (None, None), ("x", None)]
)
def test_lifetimes_are_read_as_providers_write_them(ttl, seconds):
    assert seconds_of(ttl) == seconds


@pytest.mark.parametrize("theirs", [0, 1, 2, 3, 4])
def test_never_more_than_four_marks_the_callers_counted(theirs):
    history = (Message(role="user", content=tuple(part(f"p{n}", **mark()) for n in range(theirs))),)
    layout = arrange(request(history=history if theirs else ()), policy=POLICY)
    plan = planned(layout)
    assert len(plan.breakpoints) + theirs <= 4
    if theirs < 4:
        assert plan.breakpoints[-1].block == len(DOCS) - 1
    messages, tools = marked(layout, plan.breakpoints, CLAUDE)
    assert len(caller_marks(messages, tools)) == theirs + len(plan.breakpoints)


def test_marks_put_twice_are_there_once():
    layout = arrange(request(), policy=POLICY)
    plan = planned(layout)
    messages, _ = marked(layout, plan.breakpoints * 2, CLAUDE)
    assert len(caller_marks(messages)) == len(plan.breakpoints)


def lifetimes(layout, plan) -> list[int]:
    messages, tools = marked(layout, plan.breakpoints, CLAUDE)
    return [found.ttl_s or 300 for found in caller_marks(messages, tools)]


def test_our_marks_never_live_longer_than_a_callers_mark_before_them():
    layout = arrange(request(tools=({"name": "a", **mark()},)), policy=POLICY)
    assert lifetimes(layout, planned(layout, ttl_s=3600)) == [300, 300]


def test_without_a_callers_mark_ours_live_as_long_as_wanted():
    layout = arrange(request(), policy=POLICY)
    assert lifetimes(layout, planned(layout, ttl_s=3600)) == [3600]
    assert lifetimes(layout, planned(layout)) == [300]


def test_our_marks_live_at_least_as_long_as_a_callers_mark_behind_them():
    layout = arrange(request(tools=({"name": "a", **mark(ttl="1h")},)), policy=POLICY)
    assert lifetimes(layout, planned(layout, ttl_s=3600)) == [3600, 3600]
    later = Message(role="user", content=(part("later", **mark()),))
    changed = arrange(request(system="S"), policy=POLICY)
    changed = type(changed)(
        messages=(*changed.messages, later), blocks=changed.blocks, plan=changed.plan
    )
    assert lifetimes(changed, planned(changed, ttl_s=3600)) == [3600, 300]


def test_parts_hold_the_same_bytes_and_are_cut_behind_each_block():
    layout = arrange(request(system="S", volatile={"now": "9:14"}), policy=POLICY)
    messages = parted(layout)
    assert [m.text() for m in messages] == [m.text() for m in layout.messages]
    texts = [p["text"] for p in messages[1].content]
    assert texts[:-1] == [f"{block.text}\n\n" for block in layout.blocks]
    assert all(texts)


def test_marking_changes_nothing_but_the_marks():
    layout = arrange(request(), policy=POLICY)
    messages, _ = marked(layout, (Breakpoint(block=2),), CLAUDE)
    content = [{k: v for k, v in p.items() if k != "cache_control"} for p in messages[-1].content]
    assert content == [dict(p) for p in parted(layout)[-1].content]
    assert "cache_control" in messages[-1].content[2]


def test_the_head_is_marked_at_the_system_message_or_at_the_last_tool():
    head = (Breakpoint(block=-1),)
    layout = arrange(request(system="S", tools=({"name": "a"},)), policy=POLICY)
    messages, tools = marked(layout, head, CLAUDE)
    assert "cache_control" in messages[0].content[0]
    assert "cache_control" not in tools[0]
    bare = arrange(request(tools=({"name": "a"},)), policy=POLICY)
    assert "cache_control" in marked(bare, head, CLAUDE)[1][0]
    assert "cache_control" not in bare.tools[0]


def test_each_provider_gets_its_own_field():
    layout = arrange(request(), policy=POLICY)
    messages, _ = marked(layout, (Breakpoint(block=0),), OPENAI)
    assert messages[-1].content[0]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    vllm = find_rules("vllm", "any")
    assert caller_marks(marked(layout, (Breakpoint(block=0),), vllm)[0]) == ()


def test_the_deepest_mark_of_a_cached_group_is_kept_on_the_next_request():
    forest = PrefixForest()
    for _ in range(8):
        tree = forest.tree("g")
        layout = arrange(request(), policy=POLICY, tree=tree)
        plan = plan_breakpoints(layout, rules=OPENAI, tree=tree)
        forest.remember("g", layout.plan, marks=plan)
    assert plan.breakpoints[-1].block == len(DOCS) - 1
    assert isinstance(layout.plan, Plan)
    assert plan.written_tokens == 0


def test_a_longer_lifetime_is_chosen_by_seconds():
    assert CLAUDE.lifetime(None).name == "5m"
    assert CLAUDE.lifetime(301).name == "1h"
    assert CLAUDE.lifetime(10**9).name == "1h"
    assert Lifetime().seconds is None
