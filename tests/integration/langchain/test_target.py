"""`RagCacheChatModel(target=...)`: the same without an existing model."""

from __future__ import annotations

import pytest
from langchain_core.tools import tool

from langchain_ragcache import RagCacheChatModel
from ragcache.errors import ConfigError
from ragcache.targets.openai import OpenAITarget
from tests.doubles.upstream import KNOWN_FIELDS, Reply
from tests.fixtures_langchain import rag_chain

QUESTION = "What is the demurrage fee?"


@tool
def rate_quote(port: str) -> str:
    """Quote a rate."""
    return "80"


@pytest.fixture
def target(portal, brain):
    made = OpenAITarget(model="fake", base_url=brain.base_url, provider="vllm")
    brain.allowed = KNOWN_FIELDS | {"cache_salt"}
    yield made
    portal.run(made.close())


async def test_every_door_asks_the_target_once(portal, tenant, target, brain, retriever) -> None:
    llm = RagCacheChatModel(cache=portal, target=target, tenant=tenant, params={"seed": 7})
    chain = rag_chain(llm, retriever)
    first = chain.invoke(QUESTION)
    streamed = "".join([c.content async for c in chain.astream(QUESTION)])
    again = await chain.ainvoke(QUESTION)
    plain = "".join(c.content for c in chain.stream(QUESTION))
    assert {first.content, streamed, again.content, plain} == {"The fee is 80 per day."}
    (body,) = brain.bodies
    assert body["seed"] == 7
    assert len(body["cache_salt"]) == 43
    assert first.usage_metadata["input_tokens"] == 100
    assert again.response_metadata["ragcache"]["hit"] == "exact"


def test_a_miss_streams_in_pieces_also_from_a_thread(portal, tenant, target, retriever) -> None:
    chain = rag_chain(RagCacheChatModel(cache=portal, target=target, tenant=tenant), retriever)
    pieces = [c.content for c in chain.stream(QUESTION) if c.content]
    assert pieces == ["The", " fee", " is", " 80", " per", " day", "."]


async def test_tools_go_out_and_come_back(portal, tenant, target, brain) -> None:
    llm = RagCacheChatModel(cache=portal, target=target, tenant=tenant)
    answer = await llm.bind_tools([rate_quote], tool_choice="any").ainvoke(QUESTION)
    assert answer.tool_calls[0]["name"] == "rate_quote"
    assert brain.bodies[0]["tool_choice"] == "required"


async def test_arguments_that_break_off_are_an_invalid_call_and_no_error(
    portal, tenant, upstream
) -> None:
    function = {"name": "rate_quote", "arguments": '{"port": "Ri'}
    call = {"id": "c1", "type": "function", "function": function}
    upstream.answer(Reply(text="", tool_calls=[call], finish_reason="length"))
    target = OpenAITarget(model="fake", base_url=upstream.base_url)
    llm = RagCacheChatModel(cache=portal, target=target, tenant=tenant)
    answer = await llm.bind_tools([rate_quote]).ainvoke(QUESTION)
    portal.run(target.close())
    assert answer.tool_calls == []
    assert [c["args"] for c in answer.invalid_tool_calls] == ['{"port": "Ri']


def test_one_of_model_and_target_is_wanted(portal, target, thinking) -> None:
    with pytest.raises(ConfigError, match="either inner="):
        RagCacheChatModel(cache=portal)
    with pytest.raises(ConfigError, match="either inner="):
        RagCacheChatModel(cache=portal, target=target, inner=thinking())
    with pytest.raises(ConfigError, match="neither a setting"):
        RagCacheChatModel(cache=portal, target=target, tempreature=0.2)
