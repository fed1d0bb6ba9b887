"""`wrap` on an LLM: one line, and everything else stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode

from llama_index_ragcache import wrap
from ragcache.errors import ConfigError
from tests.doubles.upstream import Reply
from tests.fixtures_llama_index import TARIFF, engine_over

pytestmark = pytest.mark.llama_index

QUESTIONS = ("What is the fee?", "How long is the free time?", "Are reefer plugs billed?")


def context(body: dict[str, Any]) -> str:
    return body["messages"][-1]["content"].split("---------------------")[1].strip()


async def text_of(response: Any) -> str:
    if hasattr(response, "async_response_gen"):
        return "".join([token async for token in response.async_response_gen()])
    if hasattr(response, "response_gen") and response.response_gen is not None:
        return "".join(response.response_gen)
    return str(response)


@pytest.mark.parametrize("kind", ["open_ai", "open_ai_like"])
def test_second_ask_is_a_hit_of_the_same_class(
    kind, request, portal, tenant, upstream, flapping
) -> None:
    llm = request.getfixturevalue(kind)()
    wrapped = wrap(llm, portal, tenant=tenant)
    engine = engine_over(wrapped, flapping)
    first, second = (str(engine.query("What is the demurrage fee?")) for _ in range(2))
    assert isinstance(wrapped, type(llm))
    assert type(llm) is not type(wrapped)
    assert wrapped.metadata == llm.metadata
    assert len(upstream.bodies) == 1
    assert first == second == "The fee is 80."
    assert flapping.calls == 2


@pytest.mark.parametrize("streaming", [False, True])
async def test_nodes_are_sent_in_one_order_and_reported_in_theirs(
    streaming, portal, tenant, open_ai, upstream, flapping
) -> None:
    engine = engine_over(wrap(open_ai(), portal, tenant=tenant), flapping, streaming=streaming)
    for ask in QUESTIONS:
        response = engine.query(ask)
        assert await text_of(response) == "The fee is 80."
        assert [n.score for n in response.source_nodes] == [1.0, 0.9, 0.8]
    for ask in (q.replace("?", " today?") for q in QUESTIONS):
        response = await engine.aquery(ask)
        assert await text_of(response) == "The fee is 80."
    contexts = [context(body) for body in upstream.bodies]
    assert len(contexts) == 6
    assert len(set(contexts)) == 1
    assert all(text in contexts[0] for _, text in TARIFF)


def test_bare_llm_sends_another_order_each_time(open_ai, upstream, flapping) -> None:
    """The control of the test above."""
    engine = engine_over(open_ai(), flapping)
    for ask in QUESTIONS:
        engine.query(ask)
    assert len({context(body) for body in upstream.bodies}) == 3


async def test_all_doors_of_an_engine_share_one_entry(
    portal, tenant, open_ai, upstream, flapping
) -> None:
    upstream.answer(Reply(pieces=["The fee", " is ", "80."]))
    llm = wrap(open_ai(), portal, tenant=tenant)
    plain, streamed = engine_over(llm, flapping), engine_over(llm, flapping, streaming=True)
    question = "What is the demurrage fee?"
    texts = [
        await text_of(await streamed.aquery(question)),
        await text_of(await streamed.aquery(question)),
        await text_of(streamed.query(question)),
        await text_of(await plain.aquery(question)),
        await text_of(plain.query(question)),
    ]
    assert set(texts) == {"The fee is 80."}
    assert len(upstream.bodies) == 1


async def test_cache_on_the_running_loop(make, tenant, open_ai, upstream, flapping) -> None:
    engine = engine_over(wrap(open_ai(), await make(), tenant=tenant), flapping)
    texts = [str(await engine.aquery("What is the demurrage fee?")) for _ in range(2)]
    assert texts == ["The fee is 80."] * 2
    assert len(upstream.bodies) == 1


def test_an_index_of_vectors(portal, tenant, open_ai, upstream) -> None:
    nodes = [TextNode(text=text, metadata={"file_path": source}) for source, text in TARIFF]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8))
    engine = index.as_query_engine(llm=wrap(open_ai(), portal, tenant=tenant), similarity_top_k=3)
    texts = [str(engine.query("What is the demurrage fee?")) for _ in range(2)]
    assert texts == ["The fee is 80."] * 2
    assert len(upstream.bodies) == 1


def test_what_is_no_llm_is_refused(portal, tenant) -> None:
    with pytest.raises(ConfigError, match="is no LLM of LlamaIndex"):
        wrap("gpt", portal, tenant=tenant)
