"""A follow-up that a chat engine condenses into a question of its own is matched by it."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine

from llama_index_ragcache import wrap
from tests.doubles.upstream import Reply

pytestmark = pytest.mark.llama_index

CONDENSED = "What is the demurrage fee?"


def turns(topic: str) -> list[ChatMessage]:
    return [
        ChatMessage(role=MessageRole.USER, content=f"Tell me about {topic}."),
        ChatMessage(role=MessageRole.ASSISTANT, content=f"{topic} is a charge."),
    ]


@pytest.fixture
def llm(portal, tenant, open_ai):
    return wrap(open_ai(), portal, tenant=tenant)


def engine(llm: Any, retriever: Any) -> CondensePlusContextChatEngine:
    return CondensePlusContextChatEngine.from_defaults(retriever, llm=llm)


def test_two_conversations_condensed_to_one_question_share_its_answer(
    llm, flapping, upstream
) -> None:
    upstream.answer(Reply(text=CONDENSED), Reply(text="The fee is 80."), Reply(text=CONDENSED))
    first = engine(llm, flapping).chat("How much is it?", chat_history=turns("demurrage"))
    other = engine(llm, flapping).chat("And what is due?", chat_history=turns("Demurrage"))
    assert str(first) == str(other) == "The fee is 80."
    assert len(upstream.bodies) == 3, "the second conversation was condensed, not answered"


async def test_also_when_it_is_awaited(llm, flapping, upstream) -> None:
    upstream.answer(Reply(text=CONDENSED), Reply(text="The fee is 80."), Reply(text=CONDENSED))
    first = await engine(llm, flapping).achat("How much is it?", chat_history=turns("demurrage"))
    other = await engine(llm, flapping).achat("And what is due?", chat_history=turns("Demurrage"))
    assert str(first) == str(other) == "The fee is 80."
    assert len(upstream.bodies) == 3


def test_a_chat_that_condenses_nothing_takes_no_earlier_question(llm, flapping, upstream) -> None:
    """The control: the same documents, in the same context, for a turn that leans on its chat."""
    upstream.answer(
        Reply(text=CONDENSED), Reply(text="The fee is 80."), Reply(text="It is 4 days.")
    )
    first = engine(llm, flapping).chat("And that?", chat_history=turns("demurrage"))
    plain = ContextChatEngine.from_defaults(flapping, llm=llm)
    other = plain.chat("And that?", chat_history=turns("free time"))
    assert (str(first), str(other)) == ("The fee is 80.", "It is 4 days.")
