"""A request goes where its prefix was last sent, and elsewhere on load."""

from __future__ import annotations

import random

from ragcache.layout import LayoutPolicy, arrange
from ragcache.targets.routing import Router, links_of
from ragcache.types import Call, Document, Message, Request

BOTH = (0, 1)


def call(*documents: str, salt: str = "s", model: str = "m", question: str = "q") -> Call:
    request = Request(
        tenant="t",
        system="Answer from the documents only.",
        question=question,
        documents=tuple(Document(text=f"{name} " * 100, source=name) for name in documents),
    )
    layout = arrange(request, policy=LayoutPolicy())
    return Call(model=model, messages=layout.messages, layout=layout, cache_salt=salt)


def send(router: Router, call: Call, among=BOTH) -> int:
    links = links_of(call)
    at = router.choose(links, among=among)
    router.began(at, links)
    router.ended(at)
    return at


def test_a_prefix_goes_where_it_was_sent_and_new_ones_are_spread():
    router = Router(2)
    first = {name: send(router, call(name)) for name in "abcd"}
    assert sorted(first.values()) == [0, 0, 1, 1]
    for _ in range(3):
        assert {name: send(router, call(name, question="another")) for name in "dcba"} == first


def test_the_longest_prefix_decides():
    router = Router(2)
    one = send(router, call("a", "b", "c"))
    assert send(router, call("x")) != one
    assert send(router, call("a", "b", "d")) == one


def test_the_head_alone_binds_to_nobody():
    router = Router(2)
    places = [send(router, call(str(at))) for at in range(10)]
    assert sorted(places) == [0] * 5 + [1] * 5


def test_another_salt_or_model_is_another_prefix():
    names = {links_of(c)[-1].key for c in (call("a"), call("a", salt="z"), call("a", model="n"))}
    assert len(names) == 3
    assert links_of(call("a"))[:-1] == links_of(call("a", "b"))[: len(links_of(call("a"))) - 1]


def test_a_busy_replica_is_passed_by():
    router = Router(2, max_lead=2)
    links = links_of(call("a"))
    home = router.choose(links, among=BOTH)
    router.began(home, links)
    assert router.choose(links, among=BOTH) == home
    router.began(home, links)
    assert router.choose(links, among=BOTH) != home
    router.ended(home)
    assert router.choose(links, among=BOTH) == home


def test_a_replica_that_is_down_gets_nothing_and_one_that_restarted_holds_nothing():
    router = Router(2)
    home = send(router, call("a"))
    other = 1 - home
    assert send(router, call("a"), among=(other,)) == other
    assert send(router, call("a")) == other  # last sent there
    assert router.remembers
    router.forget(other)
    assert router.choose(links_of(call("z")), among=BOTH) in BOTH
    router.forget(home)
    assert not router.remembers


def test_memory_is_bounded():
    router = Router(2, max_prefixes=50)
    for number in range(200):
        send(router, call(str(number)))
    assert len(router._held) <= 50


def test_messages_of_a_caller_without_a_layout_are_followed_turn_by_turn():
    router = Router(2)
    turns = [Message(role="system", content="S" * 400), Message(role="user", content="q1" * 200)]
    first = Call(model="m", messages=tuple(turns))
    home = send(router, first)
    assert (
        send(router, Call(model="m", messages=(Message(role="user", content="z" * 999),))) != home
    )
    longer = Call(model="m", messages=(*turns, Message(role="assistant", content="a1")))
    assert send(router, longer) == home


def test_each_replica_holds_its_own_sets_whatever_the_order_of_requests():
    """Control: round robin computes every set on both."""
    router, robin = Router(2), 0
    random_ = random.Random(7)
    ours: set[tuple[int, str]] = set()
    theirs: set[tuple[int, str]] = set()
    for number in range(60):
        name = random_.choice("abcde")
        ours.add((send(router, call(name, question=str(number))), name))
        theirs.add((robin := 1 - robin, name))
    assert len(ours) == 5
    assert len(theirs) == 10
