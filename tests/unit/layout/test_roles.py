"""Messages in the roles that a host's chat template accepts."""

from __future__ import annotations

import pytest

from ragcache.layout import LayoutPolicy, arrange, for_host, render
from ragcache.layout.roles import adapted
from ragcache.types import Document, Message, Request


def m(role: str, content: str) -> Message:
    return Message(role=role, content=content)


TALK = [
    m("system", "A"), m("system", "B"), m("user", "q1"), m("assistant", "a1"),
    m("system", "note C"), m("user", "q2"),
]  # fmt: skip


def shape(messages) -> list[tuple[str, str]]:
    return [(message.role, message.text()) for message in messages]


def test_a_permissive_host_gets_every_message_as_it_is():
    assert shape(adapted(TALK, "any")[0]) == shape(TALK)


def test_a_strict_host_gets_one_system_message_and_alternating_turns():
    messages, _ = adapted(TALK, "strict")
    assert shape(messages) == [
        ("system", "A\n\nB"),
        ("user", "q1"),
        ("assistant", "a1"),
        ("user", "[Note from the system: note C]\n\nq2"),
    ]


def test_a_host_without_system_gets_it_at_the_start_of_the_first_user_message():
    messages, _ = adapted(TALK, "no_system")
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert messages[0].text() == "A\n\nB\n\nq1"


@pytest.mark.parametrize("host", ["any", "strict", "no_system"])
def test_developer_becomes_system_where_the_role_is_not_known(host):
    roles = {message.role for message in adapted([m("developer", "D"), m("user", "q")], host)[0]}
    assert "developer" not in roles
    kept = adapted([m("developer", "D"), m("user", "q")], "any", developer=True)[0]
    assert kept[0].role == "developer"


@pytest.mark.parametrize("host", ["any", "strict", "no_system"])
def test_the_next_turn_keeps_the_bytes_of_this_one(host):
    before = render(adapted(TALK, host)[0])
    longer = [*TALK, m("assistant", "a2"), m("system", "D"), m("user", "q3")]
    assert render(adapted(longer, host)[0]).startswith(before)


def test_two_user_messages_in_a_row_become_one_turn():
    messages, places = adapted([m("user", "a"), m("user", "b"), m("assistant", "c")], "strict")
    assert shape(messages) == [("user", "a\n\nb"), ("assistant", "c")]
    assert places == [(0, 0), (0, 3), (1, 0)]


def test_a_note_behind_the_last_user_turn_is_not_lost():
    messages, _ = adapted([m("user", "a"), m("assistant", "b"), m("system", "N")], "strict")
    assert messages[-1].role == "user"
    assert "N" in messages[-1].text()


def test_content_parts_are_joined_as_parts():
    parts = Message(role="user", content=({"type": "text", "text": "x"},))
    [message], _ = adapted([m("user", "a"), parts], "strict")
    assert message.text() == "a\n\nx"
    assert not isinstance(message.content, str)


@pytest.mark.parametrize("host", ["strict", "no_system"])
def test_boundaries_follow_their_blocks(host):
    request = Request(
        tenant="t",
        system="S",
        question="Why?",
        history=(m("user", "q"), m("assistant", "a"), m("system", "note")),
        documents=(Document(text="x" * 50), Document(text="y" * 50)),
    )
    layout = for_host(arrange(request, policy=LayoutPolicy(min_prefix_tokens=0)), host)
    text = render(layout.messages, layout.tools)
    for end, block in zip(layout.boundaries[1:], layout.blocks, strict=True):
        assert text[:end].endswith(block.text)
