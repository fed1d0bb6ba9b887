"""Conversations are append-only: earlier turns stay byte for byte what was sent."""

from __future__ import annotations

import pytest

from ragcache.types import Document, Message, Request
from tests.doubles.bodies import render
from tests.doubles.upstream import Reply

D1 = Document(text="Free time is 4 days.", source="terms.pdf")
D2 = Document(text="Demurrage is 80 per day.", source="tariff.pdf")
D5 = Document(text="Weekends count as days.", source="calendar.pdf")
TURNS = [
    ("How long is free time?", (D1, D2), "Four days."),
    ("And what about weekends there?", (D2, D5), "They count."),
    ("Thank you, is that final?", (), "Yes."),
]


async def converse(cache, upstream, tenant, **fields) -> list[bytes]:
    """Ask the three turns, passing back what was asked and answered; return the bodies."""
    history: tuple[Message, ...] = ()
    for question, documents, reply in TURNS:
        upstream.answer(Reply(text=reply))
        answer = await cache.answer(
            Request(
                tenant=tenant,
                question=question,
                system="Answer from the documents.",
                documents=documents,
                history=history,
                **fields,
            )
        )
        assert answer.text == reply
        history += (
            Message(role="user", content=question),
            Message(role="assistant", content=reply),
        )
        await cache._parts.settled()
    return [render(body) for body in upstream.bodies]


@pytest.mark.parametrize("fields", [{}, {"session": "s1"}], ids=["by turns", "by session"])
async def test_L06_documents_of_earlier_turns_stay_where_they_were(make, upstream, tenant, fields):
    cache = await make()
    one, two, three = await converse(cache, upstream, tenant, **fields)
    replies = [f"\n<assistant>{reply}".encode() for _, _, reply in TURNS]
    assert two.startswith(one + replies[0])
    assert three.startswith(two + replies[1])
    assert two.count(D2.text.encode()) == 1
    assert one.count(D2.text.encode()) == 1
    newest = two[len(one) + len(replies[0]) :]
    assert newest.index(D5.text.encode()) < newest.index(TURNS[1][0].encode())
    assert three[len(two) + len(replies[1]) :] == f"\n<user>{TURNS[2][0]}".encode()
    roles = [m["role"] for m in upstream.bodies[2]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]


async def test_L06_a_volatile_value_of_an_earlier_turn_stays_in_it(make, upstream, tenant):
    cache = await make()
    history: tuple[Message, ...] = ()
    for at, (question, documents, reply) in enumerate(TURNS):
        upstream.answer(Reply(text=reply))
        await cache.answer(
            Request(
                tenant=tenant,
                question=question,
                documents=documents,
                history=history,
                volatile={"Now": f"09:1{at}"},
            )
        )
        history += (
            Message(role="user", content=question),
            Message(role="assistant", content=reply),
        )
        await cache._parts.settled()
    bodies = [render(body) for body in upstream.bodies]
    assert bodies[1].startswith(bodies[0])
    assert bodies[2].startswith(bodies[1])
    assert all(bodies[2].count(f"09:1{at}".encode()) == 1 for at in range(3))


async def test_an_edited_history_is_sent_as_it_is_and_named(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(text="Four days."))
    asked = Request(tenant=tenant, question="How long is free time?", documents=(D1,), session="s")
    await cache.answer(asked)
    await cache._parts.settled()
    history = (
        Message(role="user", content="How long is free time?"),
        Message(role="assistant", content="A summary of it."),
    )
    answer = await cache.answer(asked.replace(question="And on weekends there?", history=history))
    assert any("reuse lost" in note for note in answer.reuse.notes)
    assert "A summary of it." in render(upstream.bodies[1]).decode()


async def test_two_principals_with_one_session_name_never_meet(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(text="Four days."))
    for principal in ("dana", "kim"):
        await cache.answer(
            Request(
                tenant=tenant,
                principal=principal,
                question=f"Hello from {principal}, how long is it?",
                documents=(D1,),
                session="s",
            )
        )
        await cache._parts.settled()
    assert "dana" not in render(upstream.bodies[1]).decode()
