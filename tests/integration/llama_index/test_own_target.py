"""`RagCacheLLM`: an LLM over any of ragcache's own targets, with either `openai` package."""

from __future__ import annotations

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool

from llama_index_ragcache import RagCacheLLM
from tests.doubles.upstream import Reply
from tests.fixtures_llama_index import engine_over


async def test_all_doors_ask_the_target_once(
    portal, tenant, upstream, own_target, flapping
) -> None:
    upstream.answer(Reply(pieces=["The fee", " is ", "80."]))
    llm = RagCacheLLM(cache=portal, target=own_target, tenant=tenant)
    plain, streamed = engine_over(llm, flapping), engine_over(llm, flapping, streaming=True)
    question = "What is the demurrage fee?"
    first = await streamed.aquery(question)
    texts = ["".join([token async for token in first.async_response_gen()])]
    texts.append("".join(streamed.query(question).response_gen))
    texts.append(str(plain.query(question)))
    texts.append(str(await plain.aquery(question)))
    assert set(texts) == {"The fee is 80."}
    assert len(upstream.bodies) == 1


async def test_on_the_running_loop_with_the_caches_own_target(
    make, tenant, upstream, flapping
) -> None:
    llm = RagCacheLLM(cache=await make(), tenant=tenant, temperature=0.0)
    engine = engine_over(llm, flapping)
    for question in ("What is the fee?", "How long is the free time?"):
        await engine.aquery(question)
    contexts = {b["messages"][-1]["content"].split("Query:")[0] for b in upstream.bodies}
    assert len(upstream.bodies) == 2
    assert len(contexts) == 1
    assert upstream.bodies[0]["temperature"] == 0.0


async def test_tools_reach_the_target_and_their_calls_come_back(
    portal, tenant, upstream, own_target
) -> None:
    def quote(port: str) -> str:
        """Quote a rate."""
        return port

    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "quote", "arguments": '{"port": "Riga"}'},
    }
    upstream.answer(Reply(text="", tool_calls=[call], finish_reason="tool_calls"))
    llm = RagCacheLLM(cache=portal, target=own_target, tenant=tenant)
    tool = FunctionTool.from_defaults(quote)
    for _ in range(2):
        response = await llm.achat_with_tools([tool], user_msg="A rate for Riga?")
        (found,) = llm.get_tool_calls_from_response(response)
        assert (found.tool_id, found.tool_name, found.tool_kwargs) == (
            "c1",
            "quote",
            {"port": "Riga"},
        )
    assert len(upstream.bodies) == 2
    assert upstream.bodies[0]["tools"][0]["function"]["name"] == "quote"


def test_usage_of_a_hit_is_zero(portal, tenant, upstream, own_target, flapping) -> None:
    llm = RagCacheLLM(cache=portal, target=own_target, tenant=tenant)
    messages = [ChatMessage(content="Hello")]
    response = llm.chat(messages, ragcache={"no_store": True})
    assert response.additional_kwargs["prompt_tokens"] == 100
    assert response.raw["usage"]["completion_tokens"] == 5
