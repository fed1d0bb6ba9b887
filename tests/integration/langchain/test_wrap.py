"""`wrap` on models and chains: one line, and everything else stays as it was."""

from __future__ import annotations

from typing import Any

from langchain_ragcache import RagCacheChatModel, wrap
from tests.doubles.upstream import Reply
from tests.fixtures_langchain import TARIFF, rag_chain


def user_text(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"]


def test_wrapped_model_in_a_chain_hits_on_the_second_ask(
    portal, tenant, chat, upstream, retriever
) -> None:
    llm = wrap(chat(), portal, tenant=tenant)
    chain = rag_chain(llm, retriever)
    first = chain.invoke("What is the demurrage fee?")
    second = chain.invoke("What is the demurrage fee?")
    assert isinstance(llm, RagCacheChatModel)
    assert len(upstream.bodies) == 1
    assert first.content == second.content == "The fee is 80."
    assert first.response_metadata["ragcache"]["stored"] is True
    assert second.response_metadata["ragcache"]["hit"] == "exact"
    assert first.usage_metadata["input_tokens"] == 100
    assert second.usage_metadata["total_tokens"] == 0
    assert first.id != second.id


def test_wrapped_chain_sends_blocks_in_one_order(portal, tenant, chat, upstream, retriever) -> None:
    chain = wrap(rag_chain(chat(), retriever), portal, tenant=tenant)
    for question in ("What is the fee?", "How long is the free time?", "Are reefer plugs billed?"):
        chain.invoke(question)
    texts = [user_text(b).split("\n\nQuestion:")[0] for b in upstream.bodies]
    assert len(upstream.bodies) == 3
    assert len(set(texts)) == 1
    assert sorted(texts[0].split("\n\n")) == sorted(d.page_content for d in TARIFF)
    assert retriever.calls == 3


def test_bare_chain_sends_blocks_in_another_order_each_time(chat, upstream, retriever) -> None:
    """The control of the test above."""
    chain = rag_chain(chat(), retriever)
    for question in ("What is the fee?", "How long is the free time?"):
        chain.invoke(question)
    assert len({user_text(b).split("\n\nQuestion:")[0] for b in upstream.bodies}) == 2


async def test_all_doors_of_a_chain(portal, tenant, chat, upstream, retriever) -> None:
    upstream.answer(Reply(pieces=["The fee", " is ", "80."]))
    chain = rag_chain(wrap(chat(), portal, tenant=tenant), retriever)
    question = "What is the demurrage fee?"
    streamed = [chunk async for chunk in chain.astream(question)]
    again = [chunk async for chunk in chain.astream(question)]
    waited = await chain.ainvoke(question)
    plain = list(chain.stream(question))
    assert len(upstream.bodies) == 1
    assert "".join(c.content for c in streamed) == "The fee is 80."
    assert "".join(c.content for c in again) == "".join(c.content for c in plain)
    assert waited.content == "The fee is 80."
    assert again[-1].response_metadata["finish_reason"] == "stop"
    assert streamed[-1].response_metadata["ragcache"]["stored"] is True


async def test_cache_on_the_running_loop(make, tenant, chat, upstream, retriever) -> None:
    cache = await make()
    chain = rag_chain(wrap(chat(), cache, tenant=tenant), retriever)
    first = await chain.ainvoke("What is the demurrage fee?")
    second = await chain.ainvoke("What is the demurrage fee?")
    assert len(upstream.bodies) == 1
    assert first.content == second.content
    assert second.response_metadata["ragcache"]["hit"] == "exact"
