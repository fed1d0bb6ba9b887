"""Earlier turns go out as they were sent; cache markers stay within their limits."""

from __future__ import annotations

import random

from langchain_core.messages import HumanMessage, SystemMessage

from langchain_ragcache.markers import MIN_CHARS, marks, planned, room
from ragcache.sent import Arrangement, SentTurns
from ragcache.types import Breakpoint, Formatted, Message


def arrangement(seed: int, splits: tuple[int, ...] = ()) -> tuple[str, str, Arrangement]:
    rng = random.Random(seed)
    blocks = tuple("b" * rng.randint(1, 9) + str(at) for at in range(rng.randint(1, 6)))
    head, tail = "head " * rng.randint(0, 2), " tail" * rng.randint(0, 2)
    text = head + "\n\n".join(blocks) + tail
    order = list(range(len(blocks)))
    rng.shuffle(order)
    formatted = Formatted(
        messages=(Message(role="user", content=text),),
        head=head,
        separator="\n\n",
        blocks=blocks,
        tail=tail,
    )
    sent = head + "\n\n".join(blocks[at] for at in order) + tail
    places = tuple(s for s in splits if s < len(blocks))
    return text, sent, Arrangement.of(formatted, tuple(order), places)


def test_a_text_is_arranged_again_from_lengths_alone() -> None:
    for seed in range(300):
        text, sent, how = arrangement(seed)
        assert how.content(text) == sent


def test_parts_joined_are_the_text_and_marks_change_no_text() -> None:
    for seed in range(300):
        text, sent, how = arrangement(seed, splits=(0, 2))
        parts = how.content(text)
        marked = how.content(text, {0: {"type": "ephemeral"}})
        assert "".join(p["text"] for p in parts) == sent
        assert [p["text"] for p in parts] == [p["text"] for p in marked]
        assert "cache_control" in marked[0]
        assert not any("cache_control" in p for p in parts)
        assert all(p["text"] for p in parts)


def test_turns_are_remembered_for_their_tenant_only_and_the_oldest_go_first() -> None:
    turns = SentTurns(size=2)
    _, _, how = arrangement(1)
    turns.remember("acme", "one", how)
    assert turns.find("acme", "one") is how
    assert turns.find("beta", "one") is None
    turns.remember("acme", "two", how)
    turns.remember("acme", "three", how)
    assert turns.find("acme", "one") is None
    assert len(turns) == 2


MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def text_part(**more):
    return {"type": "text", "text": "x", **more}


def test_callers_markers_take_places() -> None:
    messages = [
        SystemMessage([text_part(**MARK), text_part(**MARK)]),
        HumanMessage([text_part(**MARK)]),
    ]
    tools = {"tools": [{"name": "a", **MARK}]}
    assert room(messages, tools, at=1).places == 0
    assert room(messages, {}, at=1).places == 1
    assert marks((Breakpoint(block=3),), room(messages, tools, at=1)) == {}
    assert list(marks((Breakpoint(block=3),), room(messages, {}, at=1))) == [3]


def test_lifetimes_never_grow_along_the_request() -> None:
    hour = (Breakpoint(block=5, ttl_s=3600),)
    human = HumanMessage("docs")
    short_ahead = room([human], {"tools": [{"name": "a", **MARK}]}, at=0)
    assert marks(hour, short_ahead)[5] == {"type": "ephemeral"}
    assert marks(hour, room([human], {}, at=0))[5]["ttl"] == "1h"
    short_behind = room([human, HumanMessage([text_part(**MARK)])], {}, at=0)
    assert marks(hour, short_behind)[5]["ttl"] == "1h"
    long_behind = room([human, HumanMessage([text_part(**HOUR)])], {}, at=0)
    assert marks((Breakpoint(block=5),), long_behind)[5]["ttl"] == "1h"
    between = room([human, HumanMessage([text_part(**HOUR)])], {"tools": [MARK]}, at=0)
    assert marks(hour, between) == {}


def test_the_plan_counts_and_always_adds_the_last_block_if_it_is_worth_it() -> None:
    def where(*given: int, mode: str = "always", chars: int = MIN_CHARS) -> list[int]:
        wanted = tuple(Breakpoint(block=b) for b in given)
        return [b.block for b in planned(wanted, blocks=6, chars=chars, mode=mode, ttl_s=None)]

    assert where() == [5]
    assert where(chars=MIN_CHARS - 1) == []
    assert where(2) == [2, 5]
    assert where(-1, 5) == [-1, 5]
    assert where(2, mode="planned") == [2]
    assert where(2, mode="off") == []
