"""Conversations: append-only, documents once, and the cause of lost reuse where it is lost."""

from __future__ import annotations

import json

from ragcache.layout import (
    LayoutPolicy,
    PrefixForest,
    arrange,
    conversation_key,
    from_json,
    next_key,
    remembered,
    render,
    to_json,
)
from ragcache.types import Document, Message, Request

POLICY = LayoutPolicy(min_prefix_tokens=0)
D1, D2, D5 = (Document(text=f"text of {n} \n", source=f"{n}.pdf", id=n) for n in ("D1", "D2", "D5"))


def turn(question: str, documents=(), history=(), **fields) -> Request:
    return Request(
        **{
            "tenant": "t", "system": "S", "question": question,
            "documents": tuple(documents), "history": tuple(history), **fields,
        }
    )  # fmt: skip


def said(role: str, text: str) -> Message:
    return Message(role=role, content=text)


def talk(*turns, edit=None, **fields):
    """Run turns of (question, documents, answer); return layouts and the last state."""
    history: list[Message] = []
    state, layouts = None, []
    for question, documents, answer in turns:
        given = edit(history) if edit else history
        request = turn(question, documents, given, **fields)
        layout = arrange(request, policy=POLICY, conversation=state)
        reply = said("assistant", answer)
        state = remembered(request, layout, reply)
        state = from_json(json.loads(json.dumps(to_json(state))))
        history += [said("user", question), reply]
        layouts.append(layout)
    return layouts, state


TURNS = [("Q1", (D1, D2), "A1"), ("Q2", (D2, D5), "A2"), ("Q3", (), "A3")]


def test_each_turn_continues_the_bytes_of_the_one_before():
    layouts, _ = talk(*TURNS, volatile={"now": "09:14"})
    texts = [render(layout.messages) for layout in layouts]
    for before, after, (_, _, answer) in zip(texts, texts[1:], TURNS, strict=False):
        assert after.startswith(f"{before}<|assistant|>\n{answer}\n")


def test_a_document_is_sent_once_and_referred_to_afterwards():
    (_, second, third), _ = talk(*TURNS)
    text = second.messages[-1].text()
    assert "text of D2" not in text
    assert "text of D5" in text
    label = next(str(b.label) for b in second.blocks if b.sources == ("D2.pdf",))
    assert f"Documents above that apply again: {label}" in text
    assert third.messages[-1].text() == "Q3"


def test_the_blocks_of_earlier_turns_can_be_cited_and_are_ranked_behind():
    (_, second, third), _ = talk(*TURNS)
    assert [block.sources[0] for block in second.blocks] == ["D1.pdf", "D2.pdf", "D5.pdf"]
    assert [block.rank for block in second.blocks] == [2, 0, 1]
    assert [block.sources[0] for block in third.blocks] == ["D1.pdf", "D2.pdf", "D5.pdf"]
    text = render(third.messages)
    for end, block in zip(third.boundaries[1:], third.blocks, strict=True):
        assert text[:end].endswith(block.text)


def test_raw_text_and_names_of_earlier_documents_survive_the_store():
    (_, _, third), _ = talk(*TURNS)
    kept = [document for block in third.blocks for document in block.documents]
    assert [(d.text, d.id) for d in kept] == [(d.text, d.id) for d in (D1, D2, D5)]


def test_what_was_sent_is_expected_to_be_reused():
    (first, second, _), _ = talk(*TURNS)
    assert second.predicted_tokens == sum(len(m.text()) // 4 for m in first.messages)


def test_an_edited_history_is_reported_and_sent_as_the_caller_gave_it():
    def summarise(history):
        return [*history[:1], said("assistant", "summary"), *history[2:]] if history else history

    (_, second, third), _ = talk(*TURNS, edit=summarise)
    assert any("message 2 of the history is not what was sent" in note for note in second.notes)
    assert [m.text() for m in third.messages][2] == "summary"


def test_an_edit_before_the_documents_sends_them_again():
    def replaced(history):
        return [said("user", "other"), *history[1:]] if history else history

    (_, second, _), _ = talk(*TURNS, edit=replaced)
    assert "text of D2" in second.messages[-1].text()
    assert any("message 1" in note for note in second.notes)


def test_a_conversation_begun_anew_is_told():
    (_, second, _), _ = talk(*TURNS, edit=lambda _: [])
    assert any("begun anew" in note for note in second.notes)
    assert len(second.messages) == 2


def test_a_changed_system_message_is_told():
    _, state = talk(TURNS[0])
    history = (said("user", "Q1"), said("assistant", "A1"))
    layout = arrange(turn("Q2", history=history, system="other"), conversation=state)
    assert any("system message or tools changed" in note for note in layout.notes)


def test_what_was_sent_may_be_passed_back_instead_of_what_was_asked():
    layouts, state = talk(TURNS[0])
    history = (layouts[0].messages[-1], said("assistant", "A1"))
    layout = arrange(turn("Q2", (D2,), history), policy=POLICY, conversation=state)
    assert layout.notes == ()
    assert layout.messages[1:3] == history


def test_without_a_kept_state_the_history_goes_as_it_is_and_new_blocks_stand_in_the_newest_turn():
    history = (said("user", "Q1"), said("assistant", "A1"))
    layout = arrange(turn("Q2", (D1, D2), history), policy=POLICY)
    assert layout.messages[1:3] == history
    assert [block.sources[0] for block in layout.blocks] == ["D1.pdf", "D2.pdf"]


def test_a_block_that_the_callers_history_holds_already_is_not_sent_again():
    first = arrange(turn("Q1", (D1, D2)), policy=POLICY)
    history = (first.messages[-1], said("assistant", "A1"))
    layout = arrange(turn("Q2", (D2, D5), history), policy=POLICY)
    assert "text of D2" not in layout.messages[-1].text()
    assert "apply again" in layout.messages[-1].text()


def test_turns_or_a_session_name_the_state_and_trust_groups_are_apart():
    one = turn("Q1")
    answer = said("assistant", "A1")
    following = turn("Q2", history=(said("user", "Q1"), answer))
    assert next_key(one, answer, "a") == conversation_key(following, "a")
    assert next_key(one, answer, "a") != conversation_key(following, "b")
    named = turn("Q1", session="s")
    assert conversation_key(named, "a") == conversation_key(named.replace(question="Q9"), "a")
    assert conversation_key(named, "a") != conversation_key(named, "b")


def test_an_idle_conversation_is_not_expected_to_be_cached():
    forest = PrefixForest(lifetime_s=300.0)
    request = turn("Q1", (D1,))
    layout = arrange(request, policy=POLICY, tree=forest.tree("g"), now_s=0.0)
    state = remembered(request, layout, said("assistant", "A1"), now_s=0.0)
    later = turn("Q2", history=(said("user", "Q1"), said("assistant", "A1")))
    for now_s, expected in ((100.0, True), (400.0, False)):
        again = arrange(
            later, policy=POLICY, tree=forest.tree("g"), conversation=state, now_s=now_s
        )
        assert bool(again.predicted_tokens) is expected


def test_a_state_of_another_version_is_not_read():
    _, state = talk(TURNS[0])
    assert from_json({**to_json(state), "v": 99}) is None
