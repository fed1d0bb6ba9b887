"""A follow-up that a chain condenses into a question of its own is matched by that question."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

from langchain_ragcache import wrap
from tests.doubles.upstream import Reply

CONDENSED = "What is the demurrage fee?"
CONDENSE = ChatPromptTemplate.from_messages(
    [
        MessagesPlaceholder("chat_history"),
        ("human", "{input}"),
        ("human", "Write the question anew so that it can be understood without the chat."),
    ]
)
PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Answer from the documents only.\n\n{context}"),
        MessagesPlaceholder("chat_history"),
        ("human", "{input}"),
    ]
)


def turns(topic: str) -> list[Any]:
    return [HumanMessage(f"Tell me about {topic}."), AIMessage(f"{topic} is a charge.")]


@pytest.fixture
def chain(portal, tenant, chat, retriever):
    answering = wrap(chat(), portal, tenant=tenant)
    finding = create_history_aware_retriever(chat(), retriever, CONDENSE)
    return create_retrieval_chain(finding, create_stuff_documents_chain(answering, PROMPT))


def test_two_conversations_condensed_to_one_question_share_its_answer(chain, upstream) -> None:
    upstream.answer(Reply(text=CONDENSED), Reply(text="The fee is 80."), Reply(text=CONDENSED))
    first = chain.invoke({"input": "How much is it?", "chat_history": turns("demurrage")})
    other = chain.invoke({"input": "And what does it cost?", "chat_history": turns("Demurrage")})
    assert first["answer"] == other["answer"] == "The fee is 80."
    assert len(upstream.bodies) == 3, "the second conversation was condensed, not answered"


def test_one_turn_condensed_to_two_questions_gets_two_answers(chain, upstream) -> None:
    """The control: the same words after another conversation are another question."""
    upstream.answer(
        Reply(text=CONDENSED),
        Reply(text="The fee is 80."),
        Reply(text="How long is the free time?"),
        Reply(text="It is 4 days."),
    )
    first = chain.invoke({"input": "And that?", "chat_history": turns("demurrage")})
    other = chain.invoke({"input": "And that?", "chat_history": turns("free time")})
    assert (first["answer"], other["answer"]) == ("The fee is 80.", "It is 4 days.")


def test_what_a_model_wrote_to_search_by_is_no_question(chain, upstream) -> None:
    passage = "The demurrage fee is 80 per day in every port"
    upstream.answer(
        Reply(text=passage), Reply(text="The fee is 80."), Reply(text=passage), Reply(text="80.")
    )
    first = chain.invoke({"input": "How much is it?", "chat_history": turns("demurrage")})
    other = chain.invoke({"input": "And what is due?", "chat_history": turns("free time")})
    assert (first["answer"], other["answer"]) == ("The fee is 80.", "80.")
