"""Field cases P01, P03, P04, P06, P07: what a target accepts, at the level of the layout."""

from __future__ import annotations

import json
import re

import pytest

from ragcache.errors import MissingTenantError
from ragcache.keys import cache_salt
from ragcache.layout import (
    LayoutPolicy,
    PrefixForest,
    arrange,
    caller_marks,
    for_host,
    marked,
    plan_breakpoints,
    render,
)
from ragcache.providers import find_rules
from ragcache.types import Document, Message, Request

POLICY = LayoutPolicy(min_prefix_tokens=0)
CLAUDE = find_rules("anthropic", "claude-sonnet-4-5")
DOCS = tuple(Document(text=f"text of {n}", source=f"d{n}") for n in range(6))


def m(role: str, content) -> Message:
    return Message(role=role, content=content)


def part(text: str, **mark) -> dict:
    return {"type": "text", "text": text, **mark}


def mark(**fields) -> dict:
    return {"cache_control": {"type": "ephemeral", **fields}}


def strict(messages) -> bool:
    """A chat template that takes one system message first, and alternating turns."""
    roles = [message.role for message in messages]
    turns = roles[1:] if roles[0] == "system" else roles
    expected = ["user", "assistant"] * len(turns)
    return roles.count("system") <= 1 and turns == expected[: len(turns)]


def test_P01_every_host_gets_the_roles_that_it_knows():
    asked = Request(
        tenant="t",
        question="q2",
        documents=DOCS[:1],
        history=(
            m("system", "A"), m("system", "B"), m("user", "q1"), m("assistant", "a1"),
            m("system", "note C"),
        ),
    )  # fmt: skip
    layout = arrange(asked, policy=POLICY)
    kept = for_host(layout, "any")
    assert [x.role for x in kept.messages] == [
        "system", "system", "user", "assistant", "system", "user",
    ]  # fmt: skip
    one = for_host(layout, "strict")
    assert strict(one.messages)
    assert not strict(kept.messages)
    assert one.messages[0] == m("system", "A\n\nB")
    text = render(one.messages)
    assert text.index("a1") < text.index("note C")
    assert "text of 0" in text
    none = for_host(layout, "no_system")
    assert all(x.role != "system" for x in none.messages)
    assert none.messages[0].text().startswith("A\n\nB")
    developer = arrange(asked.replace(history=(m("developer", "D"),)), policy=POLICY)
    assert for_host(developer, "any").messages[0].role == "system"
    longer = asked.replace(
        history=(*layout.messages, m("assistant", "a2")), question="q3", documents=()
    )
    for host in ("any", "strict", "no_system"):
        before = render(for_host(layout, host).messages)
        assert render(for_host(arrange(longer, policy=POLICY), host).messages).startswith(before)


def planned(asked: Request, **fields):
    layout = arrange(asked, policy=POLICY)
    tree = PrefixForest().tree("g")
    plan = plan_breakpoints(layout, rules=CLAUDE, tree=tree, mode="always", **fields)
    return marked(layout, plan.breakpoints, CLAUDE)


@pytest.mark.parametrize("theirs", [4, 3, 0])
def test_P03_at_most_four_marks_the_callers_counted(theirs):
    tools = ({"name": "a"}, {"name": "b", **(mark() if theirs else {})})
    system = [part("s0", **mark()), part("s1", **mark())] if theirs else []
    history = [m("system", tuple(system))] if theirs else []
    if theirs == 4:
        history.append(m("user", (part("u", **mark()),)))
        history.append(m("assistant", "a"))
    asked = Request(tenant="t", question="q", tools=tools, documents=DOCS, history=tuple(history))
    messages, sent_tools = planned(asked)
    found = caller_marks(messages, sent_tools)
    assert len(found) <= 4
    last_block = messages[-1].content[len(DOCS) - 1]
    if theirs == 4:
        assert len(found) == 4
        assert "cache_control" not in last_block
    else:
        assert "cache_control" in last_block
    again, _ = planned(asked)
    assert again == messages


def lives(messages, tools) -> list[int]:
    return [found.ttl_s or 300 for found in caller_marks(messages, tools)]


def test_P04_lifetimes_never_grow_along_the_request():
    asked = Request(tenant="t", question="q", documents=DOCS)
    first = lives(*planned(asked.replace(tools=({"name": "a", **mark()},)), ttl_s=3600))
    second = lives(*planned(asked, ttl_s=3600))
    assert first == [300] * len(first)
    assert second == [3600] * len(second)
    layout = arrange(asked, policy=POLICY)
    ending = (*layout.messages, m("assistant", "a"), m("user", (part("x", **mark()),)))
    third_layout = type(layout)(messages=ending, blocks=layout.blocks, plan=layout.plan)
    plan = plan_breakpoints(
        third_layout, rules=CLAUDE, tree=PrefixForest().tree("g"), mode="always", ttl_s=3600
    )
    third = lives(*marked(third_layout, plan.breakpoints, CLAUDE))
    assert third == [3600, 300]
    assert all(run == sorted(run, reverse=True) for run in (first, second, third))


def test_P06_marks_are_only_in_what_was_marked():
    asked = Request(tenant="t", question="q", documents=DOCS, tools=({"name": "a"},))
    layout = arrange(asked, policy=POLICY)
    before = json.dumps([message.wire() for message in layout.messages])
    messages, _ = planned(asked)
    assert "cache_control" in json.dumps([message.wire() for message in messages])
    assert json.dumps([message.wire() for message in layout.messages]) == before
    assert "cache" not in before
    assert asked == Request(tenant="t", question="q", documents=DOCS, tools=({"name": "a"},))


def test_P07_salts_are_of_one_shape_and_name_nobody():
    tenants = ["acme/eu@prod", "acme/eu@stage", "x" * 300]
    salts = [cache_salt(b"secret", tenant) for tenant in tenants]
    assert len(set(salts)) == 3
    for tenant, salt in zip(tenants, salts, strict=True):
        assert re.fullmatch(r"[A-Za-z0-9_-]{16,128}", salt)
        assert tenant not in salt
        assert cache_salt(b"secret", tenant) == salt
        assert cache_salt(b"other", tenant) != salt
    with pytest.raises(MissingTenantError):
        cache_salt(b"secret", "")
