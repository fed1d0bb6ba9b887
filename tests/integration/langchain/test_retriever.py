"""`RagCacheRetriever`: an answer found before retrieval skips it, and never changes an answer."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document

from langchain_ragcache import RagCacheRetriever, wrap
from ragcache.errors import ConfigError
from tests.fixtures_langchain import TARIFF, ListRetriever, rag_chain

QUESTION = "What is the demurrage fee?"
STAFF = {"staff"}


@pytest.fixture
def spared(portal, tenant, retriever) -> RagCacheRetriever:
    return RagCacheRetriever(inner=retriever, cache=portal, access=STAFF, tenant=tenant)


@pytest.fixture
def chain(portal, tenant, chat, spared) -> Any:
    return rag_chain(wrap(chat(), portal, tenant=tenant, access=STAFF), spared)


def hit(message: Any) -> str | None:
    return message.response_metadata["ragcache"].get("hit")


async def test_an_answer_found_before_retrieval_skips_it(chain, retriever, upstream) -> None:
    first = chain.invoke(QUESTION)
    again = chain.invoke(QUESTION)
    folded = await chain.ainvoke("what is the  demurrage fee")
    streamed = [piece async for piece in chain.astream(QUESTION)]
    assert retriever.calls == len(upstream.bodies) == 1
    assert hit(first) is None
    assert hit(again) == hit(folded) == hit(streamed[-1]) == "exact"
    assert first.content == again.content == "".join(p.content for p in streamed)


def test_a_paraphrase_skips_it_too(chain, retriever, upstream, table) -> None:
    table.place(QUESTION, 1.0)
    table.place("How much is the demurrage fee?", 0.97)
    chain.invoke(QUESTION)
    assert hit(chain.invoke("How much is the demurrage fee?")) == "semantic"
    assert retriever.calls == 1


def test_another_question_is_retrieved_for(chain, retriever, upstream) -> None:
    chain.invoke(QUESTION)
    chain.invoke("How long is the free time?")
    assert retriever.calls == len(upstream.bodies) == 2


def test_the_documents_given_back_are_the_answers_own(spared, chain, retriever) -> None:
    chain.invoke(QUESTION)
    documents = spared.invoke(QUESTION)
    assert retriever.calls == 1
    assert documents == TARIFF
    documents[0].metadata["source"] = "spoilt"
    assert spared.invoke(QUESTION) == TARIFF


def test_a_changed_document_is_retrieved_for_again(portal, tenant, chain, retriever, upstream):
    chain.invoke(QUESTION)
    portal.run(portal.cache.documents.changed(tenant, ["fees.md"]))
    assert hit(chain.invoke(QUESTION)) is None
    assert retriever.calls == len(upstream.bodies) == 2


@pytest.mark.parametrize("control", ["refresh", "no_cache"])
def test_a_call_that_wants_no_cached_answer_retrieves(control, chain, retriever, upstream) -> None:
    chain.invoke(QUESTION)
    chain.invoke(QUESTION, {"metadata": {"ragcache": {control: True}}})
    assert retriever.calls == len(upstream.bodies) == 2


def test_another_tenant_is_retrieved_for(portal, chat, retriever, upstream) -> None:
    spared = RagCacheRetriever(inner=retriever, cache=portal, access=STAFF)
    chain = rag_chain(wrap(chat(), portal, access=STAFF), spared)
    for tenant in ("one", "one", "two"):
        chain.invoke(QUESTION, {"metadata": {"tenant_id": f"{tenant}-of-this-test"}})
    assert retriever.calls == len(upstream.bodies) == 2


def test_without_a_tenant_nothing_is_skipped(portal, chat, retriever, upstream) -> None:
    spared = RagCacheRetriever(inner=retriever, cache=portal, access=STAFF)
    chain = rag_chain(wrap(chat(), portal, access=STAFF), spared)
    chain.invoke(QUESTION)
    chain.invoke(QUESTION)
    assert retriever.calls == len(upstream.bodies) == 2


def test_a_document_that_the_asker_may_not_read_is_not_skipped_to(portal, tenant, chat, upstream):
    secret = Document(page_content="The fee is 70.", metadata={"source": "s", "access": ["board"]})
    retriever = ListRetriever(documents=[*TARIFF, secret])
    for access in ({"staff", "board"}, {"staff"}):
        spared = RagCacheRetriever(inner=retriever, cache=portal, access=access, tenant=tenant)
        chain = rag_chain(wrap(chat(), portal, tenant=tenant, access=access), spared)
        chain.invoke(QUESTION)
    assert retriever.calls == len(upstream.bodies) == 2
    assert hit(chain.invoke(QUESTION)) is None  # what it came from is not the asker's to read
    assert retriever.calls == 3


def test_tags_other_than_the_models_skip_nothing(portal, tenant, chat, retriever, upstream) -> None:
    spared = RagCacheRetriever(inner=retriever, cache=portal, access={"other"}, tenant=tenant)
    chain = rag_chain(wrap(chat(), portal, tenant=tenant, access=STAFF), spared)
    chain.invoke(QUESTION)
    assert hit(chain.invoke(QUESTION)) == "exact"
    assert retriever.calls == 2


@pytest.mark.parametrize("access", [(), "staff"])
def test_tags_are_required(access, portal, retriever) -> None:
    with pytest.raises(ConfigError, match="tags that the asker holds"):
        RagCacheRetriever(inner=retriever, cache=portal, access=access)


async def test_on_the_running_loop(make, tenant, chat, upstream, retriever) -> None:
    cache = await make()
    spared = RagCacheRetriever(inner=retriever, cache=cache, access=STAFF, tenant=tenant)
    chain = rag_chain(wrap(chat(), cache, tenant=tenant, access=STAFF), spared)
    first, again = [await chain.ainvoke(QUESTION) for _ in range(2)]
    assert retriever.calls == len(upstream.bodies) == 1
    assert first.content == again.content
