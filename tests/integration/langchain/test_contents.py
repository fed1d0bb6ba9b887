"""Content that is more than one text, turns that are more than two, calls that are more than one."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

import ragcache
from langchain_ragcache import wrap
from tests.doubles.anthropic import markers
from tests.doubles.upstream import Reply
from tests.fixtures_langchain import TARIFF, join, rag_chain

QUESTION = "What is the demurrage fee?"


def data(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def image(pixels: str = "one") -> dict[str, Any]:
    return {"type": "image", "base64": data(pixels), "mime_type": "image/png"}


def image_url(pixels: str = "one") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data(pixels)}"}}


def file(pages: str = "one") -> dict[str, Any]:
    kind = "application/pdf"
    return {"type": "file", "base64": data(pages), "mime_type": kind, "filename": "bill.pdf"}


KINDS = {"image": image, "image_url": image_url, "file": file}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def prompt(*more: dict[str, Any], documents: list[Document] = TARIFF) -> list[BaseMessage]:
    parts = [text(f"{join(documents)}\n\n"), *more, text(QUESTION)]
    return [SystemMessage("Answer from the documents only."), HumanMessage(parts)]


def ask(llm: Any, messages: list[BaseMessage], *, documents: list[Document] = TARIFF) -> Any:
    with ragcache.documents(documents, query=QUESTION):
        return llm.invoke(messages)


# --- lists of blocks ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_text_is_sent_as_the_model_itself_sends_it(
    kind, portal, tenant, chat, upstream
) -> None:
    messages = [HumanMessage([text(QUESTION), KINDS[kind](), text("In euros?")])]
    raw = chat()
    raw.invoke(messages)
    wrap(raw, portal, tenant=tenant).invoke(messages)
    plain, wrapped = upstream.bodies
    assert wrapped == plain
    assert data("one") in str(plain)


@pytest.mark.parametrize("kind", KINDS)
def test_documents_beside_it_are_moved_and_nothing_else_is(
    kind, portal, tenant, chat, upstream
) -> None:
    llm = wrap(chat(), portal, tenant=tenant)
    ask(llm, prompt(KINDS[kind]()))
    rotated = TARIFF[1:] + TARIFF[:1]
    ask(llm, prompt(KINDS[kind]("two"), documents=rotated), documents=rotated)
    one, two = (body["messages"][1]["content"] for body in upstream.bodies)
    assert one[0] == two[0]
    assert sorted(one[0]["text"].strip().split("\n\n")) == sorted(d.page_content for d in TARIFF)
    assert one[-1] == two[-1] == text(QUESTION)
    assert one[1] != two[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_about_another_picture_or_file_is_another_question(
    kind, portal, tenant, chat, upstream
) -> None:
    llm = wrap(chat(), portal, tenant=tenant)
    told = [ask(llm, prompt(KINDS[kind](of))) for of in ("one", "one", "two")]
    assert [m.response_metadata["ragcache"].get("hit") for m in told] == [None, "exact", None]
    assert len(upstream.bodies) == 2


# --- roles and turns ---------------------------------------------------------------------------

DEVELOPER = SystemMessage("Be brief.", additional_kwargs={"__openai_role__": "developer"})


def test_developer_and_several_system_messages_keep_their_places(
    portal, tenant, chat, upstream
) -> None:
    messages = [
        DEVELOPER,
        SystemMessage("Answer in English."),
        HumanMessage(f"{join(TARIFF)}\n\nHow long is the free time?"),
        AIMessage("4 days."),
        SystemMessage([text("Name the document.")]),
        HumanMessage(QUESTION),
    ]
    raw = chat()
    ask(raw, messages)
    ask(wrap(raw, portal, tenant=tenant), messages)
    plain, wrapped = (body["messages"] for body in upstream.bodies)
    assert [m["role"] for m in plain] == [
        "developer", "system", "user", "assistant", "system", "user",
    ]  # fmt: skip
    assert wrapped == plain


def test_a_model_whose_roles_must_alternate_gets_them_alternating(
    portal, tenant, claude, claude_api
) -> None:
    """The strict provider refuses two turns of one role; ChatAnthropic merges what we pass on."""
    messages = [
        SystemMessage("Answer from the documents only."),
        HumanMessage(f"{join(TARIFF)}\n\n"),
        HumanMessage("Thanks for reading."),
        AIMessage("Ready."),
        HumanMessage([text("One thing:")]),
        HumanMessage(QUESTION),
    ]
    raw = claude()
    ask(raw, messages)
    told = ask(wrap(raw, portal, tenant=tenant), messages)
    assert told.content == claude_api.text
    plain, wrapped = claude_api.bodies
    assert [m["role"] for m in wrapped["messages"]] == ["user", "assistant", "user"]
    assert wrapped == plain


# --- many at once ------------------------------------------------------------------------------

QUESTIONS = [f"What is fee {number}?" for number in range(12)]


def echo(upstream: Any) -> None:
    """Answer with the question, so that a mixed up answer would show."""
    upstream.script = lambda body: Reply(
        text=body["messages"][-1]["content"].rpartition("Question: ")[2]
    )


async def test_a_batch_answers_each_question_with_its_own_answer(
    portal, tenant, chat, upstream, retriever
) -> None:
    echo(upstream)
    chain = rag_chain(wrap(chat(), portal, tenant=tenant), retriever)
    told = chain.batch(QUESTIONS) + await chain.abatch(QUESTIONS)
    assert [message.content for message in told] == QUESTIONS * 2
    assert len(upstream.bodies) == len(QUESTIONS)
    hits = [message.response_metadata["ragcache"].get("hit") for message in told]
    assert hits == [None] * len(QUESTIONS) + ["exact"] * len(QUESTIONS)


async def test_a_batch_that_falls_back_answers_from_the_second_model_and_from_the_cache(
    portal, tenant, chat, upstream, retriever
) -> None:
    echo(upstream)
    dead = chat(base_url="http://127.0.0.1:9/v1")
    llm = wrap(dead.with_fallbacks([chat()]), portal, tenant=tenant)
    chain = rag_chain(llm.bind(stop=["\n"]), retriever)
    told = chain.batch(QUESTIONS[:3]) + await chain.abatch(QUESTIONS[:3])
    assert [message.content for message in told] == QUESTIONS[:3] * 2
    assert [body["stop"] for body in upstream.bodies] == [["\n"]] * 3


# --- marks of the plan -------------------------------------------------------------------------

LONG = [
    Document(page_content=f"Rule {at}: " + "the fee is charged for each day in port. " * 60)
    for at in range(6)
]


def test_planned_marks_reach_anthropics_body_once_a_prefix_comes_back(
    portal, tenant, claude, claude_api
) -> None:
    llm = wrap(claude(), portal, tenant=tenant)
    for number in range(6):
        asked = f"{QUESTION} ({number})"
        with ragcache.documents(LONG, query=asked):
            llm.invoke([SystemMessage("Be brief."), HumanMessage(f"{join(LONG)}\n\n{asked}")])
    counts = [len(markers(body)) for body in claude_api.bodies]
    # A first prompt may never come back: a write that nobody reads costs more than it saves.
    assert counts[0] == 0
    assert 1 <= counts[-1] <= 4
    content = claude_api.bodies[-1]["messages"][0]["content"]
    assert content[0]["cache_control"] == {"type": "ephemeral"}
    assert not any(QUESTION in p["text"] for p in content if "cache_control" in p)
    assert "".join(p["text"] for p in content).endswith(f"{QUESTION} (5)")
