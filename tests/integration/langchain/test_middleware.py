"""Agents: tools in one order, documents in front of the question, answers from the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import create_retriever_tool, tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_ragcache import RagCacheMiddleware
from langchain_ragcache.hoisting import hoist, sorted_tools
from tests.doubles.upstream import Reply
from tests.fixtures_langchain import TARIFF

QUESTION = "What is the demurrage fee?"


@tool
def rate_quote(port: str) -> str:
    """Quote a rate."""
    return "80"


@tool
def book_berth(port: str) -> str:
    """Book a berth."""
    return "booked"


def search(retriever: Any) -> Any:
    return create_retriever_tool(
        retriever, "search_tariffs", "Searches.", response_format="content_and_artifact"
    )


def two_steps(body: dict[str, Any]) -> Reply:
    """Search once, then answer."""
    last = max(at for at, m in enumerate(body["messages"]) if m["role"] == "user")
    if any(m["role"] == "tool" for m in body["messages"][last:]):
        return Reply(text="The fee is 80 per day.")
    call = {"name": "search_tariffs", "arguments": '{"query": "fee"}'}
    calls = [{"id": "call_1", "type": "function", "function": call}]
    return Reply(text="", finish_reason="tool_calls", tool_calls=calls)


def agent(model: Any, retriever: Any, middleware: Any, **fields: Any) -> Any:
    return create_agent(
        model,
        [search(retriever), rate_quote, book_berth],
        system_prompt="You are Orla.",
        middleware=[middleware] if middleware else [],
        **fields,
    )


def contents(body: dict[str, Any], role: str) -> list[str]:
    return [m["content"] for m in body["messages"] if m["role"] == role]


async def test_documents_stand_in_front_of_the_question(
    thinking, brain, retriever, portal, tenant
) -> None:
    brain.script = two_steps
    orla = agent(thinking(), retriever, RagCacheMiddleware(portal, tenant=tenant))
    state = await orla.ainvoke({"messages": [HumanMessage(QUESTION)]})
    first, second = brain.bodies
    assert contents(first, "user") == [QUESTION]
    (asked,) = contents(second, "user")
    assert asked.endswith(QUESTION)
    assert all(d.page_content in asked for d in TARIFF)
    (told,) = contents(second, "tool")
    assert told.startswith("Retrieved documents: [")
    assert not any(d.page_content in told for d in TARIFF)
    names = [t["function"]["name"] for t in first["tools"]]
    assert names == sorted(names)
    # The graph's own state is as the tool left it.
    kept = next(m for m in state["messages"] if isinstance(m, ToolMessage))
    assert all(d.page_content in kept.content for d in TARIFF)


async def test_bare_agent_keeps_documents_behind_the_question(thinking, brain, retriever) -> None:
    """The control of the test above."""
    brain.script = two_steps
    await agent(thinking(), retriever, None).ainvoke({"messages": [HumanMessage(QUESTION)]})
    assert contents(brain.bodies[1], "user") == [QUESTION]


def test_an_answer_is_given_without_a_call_and_a_tool_call_never(
    thinking, brain, retriever, portal, tenant
) -> None:
    brain.script = two_steps
    orla = agent(thinking(), retriever, RagCacheMiddleware(portal, tenant=tenant))
    one = orla.invoke({"messages": [HumanMessage(QUESTION)]})
    two = orla.invoke({"messages": [HumanMessage(QUESTION)]})
    # The turn that calls the tool asks the model each time, the answer only once.
    assert len(brain.bodies) == 3
    assert one["messages"][-1].content == two["messages"][-1].content
    assert two["messages"][-1].response_metadata["ragcache"]["hit"] == "exact"
    assert two["messages"][-1].usage_metadata["total_tokens"] == 0
    assert one["messages"][-1].id != two["messages"][-1].id


async def test_a_conversation_stays_append_only(thinking, brain, retriever, portal, tenant) -> None:
    """Also after a checkpoint, which turns artifacts into plain dicts."""
    brain.script = two_steps
    middleware = RagCacheMiddleware(portal, tenant=tenant)
    orla = agent(thinking(), retriever, middleware, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "one"}}
    for question in (QUESTION, "How long is the free time?"):
        await orla.ainvoke({"messages": [HumanMessage(question)]}, config)
    turn1, turn2 = brain.bodies[1]["messages"], brain.bodies[3]["messages"]
    assert turn2[: len(turn1)] == turn1
    assert turn2[-1]["role"] == "tool"


@dataclass
class Context:
    tenant_id: str


async def test_the_runtime_context_says_the_tenant(
    thinking, brain, retriever, portal, tenant
) -> None:
    brain.script = two_steps
    orla = agent(thinking(), retriever, RagCacheMiddleware(portal), context_schema=Context)
    asked = {"messages": [HumanMessage(QUESTION)]}
    for who in (tenant, tenant, f"{tenant}-other"):
        state = await orla.ainvoke(asked, context=Context(tenant_id=who))
    assert len(brain.bodies) == 2 + 1 + 2
    assert state["messages"][-1].response_metadata["ragcache"].get("hit") is None


async def test_without_a_tenant_nothing_is_stored_and_one_warning_says_so(
    thinking, brain, retriever, portal, caplog
) -> None:
    brain.script = two_steps
    orla = agent(thinking(), retriever, RagCacheMiddleware(portal))
    for _ in range(2):
        await orla.ainvoke({"messages": [HumanMessage(QUESTION)]})
    assert len(brain.bodies) == 4
    assert all(d.page_content in contents(brain.bodies[1], "user")[0] for d in TARIFF)
    assert [r.message for r in caplog.records if "no tenant" in r.message] != []
    assert len([r for r in caplog.records if "no tenant" in r.message]) == 1


async def test_messages_stream_on_a_miss_and_on_a_hit(
    thinking, brain, retriever, portal, tenant
) -> None:
    brain.script = two_steps
    orla = agent(thinking(), retriever, RagCacheMiddleware(portal, tenant=tenant))
    texts = []
    for _ in range(2):
        said = [
            message.content
            async for message, _ in orla.astream(
                {"messages": [HumanMessage(QUESTION)]}, stream_mode="messages"
            )
            if isinstance(message, AIMessage)
        ]
        texts.append("".join(said))
    assert texts == ["The fee is 80 per day."] * 2
    assert len(brain.bodies) == 3


# --- the pure parts ------------------------------------------------------------------------------


def test_tools_with_a_marker_of_the_callers_keep_their_order() -> None:
    tools = [{"name": "b", "cache_control": {"type": "ephemeral"}}, {"name": "a"}]
    assert sorted_tools(tools) == tools
    assert sorted_tools([rate_quote, book_berth]) == [book_berth, rate_quote]


@pytest.mark.parametrize("as_dicts", [False, True])
def test_hoisted_text_is_the_text_of_the_tool(as_dicts: bool) -> None:
    artifact: list[Any] = list(TARIFF)
    if as_dicts:
        artifact = [d.model_dump() for d in TARIFF]
    text = "\n\n".join(d.page_content for d in TARIFF)
    messages = [
        HumanMessage(QUESTION),
        AIMessage("", tool_calls=[{"name": "search", "args": {}, "id": "1"}]),
        ToolMessage(text, tool_call_id="1", artifact=artifact),
    ]
    found = hoist(messages)
    assert found is not None
    assert messages[0].content == QUESTION
    assert found.messages[0].content.endswith(QUESTION)
    assert found.messages[2].tool_call_id == "1"
    assert len(found.formatted.blocks) == len(TARIFF) == len(found.documents)


def test_numbered_documents_of_a_tool_stay_where_they_are() -> None:
    text = "\n\n".join(f"[{at}] {d.page_content}" for at, d in enumerate(TARIFF, 1))
    messages = [HumanMessage(QUESTION), ToolMessage(text, tool_call_id="1", artifact=TARIFF)]
    assert hoist(messages) is None


def test_without_artifacts_nothing_is_hoisted() -> None:
    assert hoist([HumanMessage(QUESTION), ToolMessage("80", tool_call_id="1")]) is None
