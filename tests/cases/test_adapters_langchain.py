"""Field cases through LangChain: adapters, request contracts, keys, layout, usage."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import time
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool
from pydantic import BaseModel

import ragcache
from langchain_ragcache import RagCacheChatModel, wrap
from ragcache.errors import IsolationError, RequestError, TargetError
from ragcache.events import Answered, Called, LookedUp
from ragcache.store.postgres import PostgresStore
from ragcache.targets.openai import OpenAITarget
from ragcache.telemetry import savings
from tests.doubles.anthropic import markers
from tests.doubles.embedder import TableEmbedder
from tests.doubles.roles import NoSystem, StrictRoles
from tests.doubles.upstream import KNOWN_FIELDS, Reply, serving
from tests.fixtures_langchain import TARIFF, ListRetriever, join, rag_chain
from tests.fixtures_pipeline import until_asking

#: Of the cases: an OpenAI-style model and an Anthropic-style one, in dollars per million tokens.
PRICES = savings.prices_of(
    {
        "o": {"input": 2.0, "read": 0.5, "output": 8.0},
        "n": {"input": 3.0, "read": 0.3, "write": 3.75, "output": 15.0},
    }
)
QUESTION = "What is the demurrage fee?"
MESSAGES = [
    SystemMessage("Answer from the documents only."),
    HumanMessage(f"{join(TARIFF)}\n\nQuestion: {QUESTION}"),
]


@tool
def rate_quote(port: str) -> str:
    """Quote a rate."""
    return "80"


def ask(llm: Any, messages: Any = None, **kwargs: Any) -> Any:
    with ragcache.documents(TARIFF, query=QUESTION):
        return llm.invoke(messages or MESSAGES, **kwargs)


def told(message: Any) -> dict[str, Any]:
    return message.response_metadata["ragcache"]


class Recorder(BaseCallbackHandler):
    """Counts what a screen would be told."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.events.append("start")

    def on_llm_new_token(self, *args: Any, **kwargs: Any) -> None:
        self.events.append("token")

    def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
        self.events.append("end")


# --- A: adapters ---------------------------------------------------------------------------------


async def test_A01_streams_are_cached_and_a_hit_is_not_silent(
    portal, tenant, chat, upstream, retriever
):
    upstream.answer(Reply(pieces=["The fee", " is", " 80."], piece_delay_s=0.1))
    chain = rag_chain(wrap(chat(), portal, tenant=tenant), retriever)
    first, arrived_at = [], None
    async for chunk in chain.astream(QUESTION):
        arrived_at = arrived_at or (time.perf_counter() if chunk.content else None)
        first.append(chunk)
    assert arrived_at is not None
    assert upstream.finished_at is not None
    assert arrived_at < upstream.finished_at
    recorder = Recorder()
    second = [c async for c in chain.astream(QUESTION, {"callbacks": [recorder]})]
    third = await chain.ainvoke(QUESTION)
    fourth = chain.invoke(QUESTION)
    assert len(upstream.bodies) == 1
    texts = ["".join(c.content for c in chunks) for chunks in (first, second)]
    assert texts == [third.content, fourth.content] == ["The fee is 80."] * 2
    assert second[-1].response_metadata["finish_reason"] == "stop"
    assert second[-1].response_metadata["ragcache"]["hit"] in ("exact", "semantic")
    assert recorder.events.count("start") == recorder.events.count("end") == 1
    assert recorder.events.count("token") >= 1


def test_A03_ids_marks_and_key_order_are_not_part_of_the_key(portal, tenant, chat, upstream):
    llm = wrap(chat(temperature=0.0), portal, tenant=tenant)
    ask(llm)
    again = [m.model_copy(update={"id": f"id-{at}"}) for at, m in enumerate(MESSAGES)]
    assert told(ask(llm, again))["hit"] == "exact"
    assert len(upstream.bodies) == 1


def test_A03_a_history_of_cached_replies_is_the_same_history(portal, tenant, chat, upstream):
    llm = wrap(chat(), portal, tenant=tenant)
    follow_up = HumanMessage("How long is the free time in every port?")
    for _ in range(2):
        reply = ask(llm)
        last = ask(llm, [*MESSAGES, reply, follow_up])
    assert len(upstream.bodies) == 2, told(last)


def test_A03_settings_are_read_at_each_call(portal, tenant, chat, upstream):
    inner = chat(temperature=0.0)
    llm = wrap(inner, portal, tenant=tenant)
    ask(llm)
    inner.temperature = 0.9
    assert "hit" not in told(ask(llm))
    assert [b["temperature"] for b in upstream.bodies] == [0.0, 0.9]


def test_A03_equal_tool_calls_are_equal_whatever_their_key_order(portal, tenant, chat, upstream):
    llm = wrap(chat(), portal, tenant=tenant)
    for args in ({"port": "A", "days": 2}, {"days": 2, "port": "A"}):
        call = AIMessage("", tool_calls=[{"name": "quote", "args": args, "id": "1"}])
        last = ask(llm, [*MESSAGES, call, ToolMessage("80", tool_call_id="1")])
    assert told(last)["hit"] == "exact"
    assert len(upstream.bodies) == 1


class Tariff(BaseModel):
    fee: int


class WiderTariff(BaseModel):
    fee: int
    days: int = 0


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_A05_structured_output_hits_and_is_an_object_again(
    portal, tenant, chat, upstream, retriever
):
    upstream.answer(Reply(text='{"fee": 80}'))
    llm = wrap(chat(), portal, tenant=tenant)
    chain = rag_chain(llm.with_structured_output(Tariff), retriever)
    one, two = chain.invoke(QUESTION), chain.invoke(QUESTION)
    assert one == two == Tariff(fee=80)
    assert len(upstream.bodies) == 1
    raw = rag_chain(llm.with_structured_output(Tariff, include_raw=True), retriever)
    answers = [raw.invoke(QUESTION) for _ in range(2)]
    assert [a["parsed"] for a in answers] == [Tariff(fee=80)] * 2
    assert answers[0]["raw"].content == answers[1]["raw"].content
    assert len(upstream.bodies) == 1
    rag_chain(llm.with_structured_output(WiderTariff), retriever).invoke(QUESTION)
    assert len(upstream.bodies) == 2


def test_A05_tools_reach_the_body_and_the_cache_still_sees_the_call(
    portal, tenant, thinking, brain, events
):
    llm = wrap(thinking(), portal, tenant=tenant)
    answer = llm.bind_tools([rate_quote]).invoke(QUESTION)
    assert answer.tool_calls[0]["name"] == "rate_quote"
    assert brain.bodies[0]["tools"][0]["function"]["name"] == "rate_quote"
    assert [e for e in events if isinstance(e, Called)]
    assert told(answer)["stored"] is False
    inner = thinking()
    wrapped = wrap(inner, portal, tenant=tenant)
    assert wrapped.model_name == inner.model_name
    assert wrapped.profile == inner.profile
    assert wrapped._llm_type == inner._llm_type


async def test_A06_a_slow_embedder_stalls_no_other_task(
    portal_of, tenant, chat, upstream, table, retriever
):
    table.delay_s = 0.3
    upstream.answer(Reply(delay_s=0.05))
    chain = rag_chain(wrap(chat(), portal_of(), tenant=tenant), retriever)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticker = asyncio.create_task(tick())
    await chain.ainvoke(QUESTION)
    ticker.cancel()
    assert ticks >= 20


def test_A06_a_hanging_embedder_costs_its_deadline_only(
    portal_of, tenant, chat, upstream, retriever
):
    hanging = TableEmbedder(delay_s=30.0)
    policies = portal_of.policies(embed_s=0.2)
    chain = rag_chain(
        wrap(chat(), portal_of(embedder=hanging, policies=policies), tenant=tenant), retriever
    )
    answer = chain.invoke(QUESTION)
    assert answer.content == "The fee is 80."
    assert told(answer)["reason"] == "embed_timeout"


def test_A06_a_store_that_is_down_breaks_nothing(portal_of, tenant, chat, retriever, caplog):
    down = PostgresStore("host=127.0.0.1 port=9 user=x dbname=x connect_timeout=1", pool_wait_s=1.0)
    chain = rag_chain(wrap(chat(), portal_of(store=down), tenant=tenant), retriever)
    answer = chain.invoke(QUESTION)
    assert answer.content == "The fee is 80."
    assert told(answer)["reason"] == "store_error"
    assert len([r for r in caplog.records if "caching is off" in r.message]) == 1


def test_A06_isolation_errors_are_not_passed_by(portal, tenant, chat, retriever, monkeypatch):
    async def broken(*args: Any, **kwargs: Any) -> Any:
        raise IsolationError("row level security is off")

    monkeypatch.setattr(portal.cache.store, "find_exact", broken)
    with pytest.raises(IsolationError):
        rag_chain(wrap(chat(), portal, tenant=tenant), retriever).invoke(QUESTION)


async def test_A07_a_burst_of_the_same_question_is_one_call(
    portal, tenant, chat, upstream, retriever, events
):
    upstream.answer(Reply(delay_s=0.2))
    chain = rag_chain(wrap(chat(), portal, tenant=tenant), retriever)
    answers = await asyncio.gather(*(chain.ainvoke(QUESTION) for _ in range(5)))
    assert len(upstream.bodies) == 1
    assert len({id(a) for a in answers}) == 5
    assert {a.content for a in answers} == {"The fee is 80."}
    assert sum(bool(told(a).get("collapsed")) for a in answers) == 4
    spent = sorted(a.usage_metadata["total_tokens"] for a in answers)
    assert spent == [0, 0, 0, 0, 105]


async def test_A07_when_the_first_caller_leaves_the_others_are_answered(
    portal, tenant, chat, upstream, retriever
):
    answer = threading.Event()
    upstream.answer(Reply(hold=answer))
    chain = rag_chain(wrap(chat(), portal, tenant=tenant), retriever)
    first = asyncio.create_task(chain.ainvoke(QUESTION))
    await until_asking(portal.cache, 1)
    others = [asyncio.create_task(chain.ainvoke(QUESTION)) for _ in range(4)]
    await until_asking(portal.cache, 5)
    first.cancel()
    answer.set()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    answers = await asyncio.gather(*others)
    assert {a.content for a in answers} == {"The fee is 80."}
    assert len(upstream.bodies) == 1


async def test_A07_an_error_reaches_all_and_is_not_stored(
    portal, tenant, chat, upstream, retriever
):
    upstream.answer(Reply(status=500, delay_s=0.2), Reply())
    chain = rag_chain(wrap(chat(), portal, tenant=tenant), retriever)
    tries = [chain.ainvoke(QUESTION) for _ in range(5)]
    errors = await asyncio.gather(*tries, return_exceptions=True)
    assert {getattr(e, "status_code", None) for e in errors} == {500}
    assert (await chain.ainvoke(QUESTION)).content == "The fee is 80."
    assert len(upstream.bodies) == 2


async def test_A07_two_tenants_never_share_a_call(portal, tenant, chat, upstream, retriever):
    upstream.answer(Reply(delay_s=0.2))
    llm = chat()
    chains = [
        rag_chain(wrap(llm, portal, tenant=f"{tenant}-{who}"), retriever) for who in ("a", "b")
    ]
    await asyncio.gather(*(chain.ainvoke(QUESTION) for chain in chains))
    assert len(upstream.bodies) == 2


# --- P: the request contract of targets ----------------------------------------------------------

TURNS = [
    SystemMessage("A"),
    SystemMessage("B"),
    HumanMessage("q1"),
    AIMessage("a1"),
    SystemMessage("note C"),
    HumanMessage(f"{join(TARIFF)}\n\nq2"),
]


def test_P01_messages_keep_number_roles_and_order(portal, tenant, chat, upstream):
    ask(wrap(chat(), portal, tenant=tenant), TURNS)
    sent = upstream.bodies[0]["messages"]
    assert [m["role"] for m in sent] == ["system", "system", "user", "assistant", "system", "user"]
    assert [m["content"] for m in sent[:5]] == ["A", "B", "q1", "a1", "note C"]


def test_P01_the_next_turn_keeps_the_bytes_of_this_one(portal, tenant, chat, upstream):
    llm = wrap(chat(), portal, tenant=tenant)
    flapping = ListRetriever(documents=TARIFF)
    history: list[Any] = [SystemMessage("A")]
    for number in range(3):
        found = flapping.invoke("q")
        history.append(HumanMessage(f"{join(found)}\n\nq{number}"))
        with ragcache.documents(found, query=f"q{number}"):
            history.append(llm.invoke(history))
    first, second, third = (b["messages"] for b in upstream.bodies)
    assert second[: len(first)] == first
    assert third[: len(second)] == second


@pytest.mark.parametrize(("host", "double"), [("strict", StrictRoles), ("no_system", NoSystem)])
async def test_P01_a_strict_host_is_sent_the_roles_it_takes(portal, tenant, host, double):
    with serving(double()) as strict:
        target = OpenAITarget(model="fake", base_url=strict.base_url, roles=host)
        llm = RagCacheChatModel(cache=portal, target=target, tenant=tenant)
        with ragcache.documents(TARIFF, query="q2"):
            reply = await llm.ainvoke(TURNS)
            await llm.ainvoke([*TURNS, reply, HumanMessage("q3")])
        portal.run(target.close())
    one, two = (b["messages"] for b in strict.bodies)
    texts = "\n".join(m["content"] for m in one)
    assert texts.index("A\n\nB") < texts.index("a1") < texts.index("note C") < texts.index("q2")
    assert two[: len(one)] == one


async def test_P01_the_strict_host_refuses_what_it_was_not_adapted_to(portal, tenant):
    """The control of the test above."""
    with serving(StrictRoles()) as strict:
        target = OpenAITarget(model="fake", base_url=strict.base_url)
        llm = RagCacheChatModel(cache=portal, target=target, tenant=tenant)
        with pytest.raises(TargetError, match="system message behind"):
            await llm.ainvoke(TURNS)
        portal.run(target.close())


def test_P01_developer_stays_developer_for_the_callers_own_model(portal, tenant, chat, upstream):
    developer = SystemMessage("A", additional_kwargs={"__openai_role__": "developer"})
    ask(wrap(chat(), portal, tenant=tenant), [developer, MESSAGES[1]])
    assert upstream.bodies[0]["messages"][0] == {"role": "developer", "content": "A"}


LONG = [
    Document(page_content=f"Rule {at}: " + "the fee is charged for each day in port. " * 40)
    for at in range(6)
]
MARK = {"cache_control": {"type": "ephemeral"}}


def long_prompt(*system: Any, question: Any = None) -> list[Any]:
    parts = [{"type": "text", "text": f"{join(LONG)}\n\n"}]
    parts.append({"type": "text", "text": QUESTION, **(question or {})})
    return [
        SystemMessage(list(system)) if system else SystemMessage("Be brief."),
        HumanMessage(parts),
    ]


def anthropic_tools(*marked: bool) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {}}
    return [
        {"name": f"tool_{at}", "description": "x", "input_schema": schema, **(MARK if m else {})}
        for at, m in enumerate(marked)
    ]


def ask_claude(llm: Any, messages: Any, **kwargs: Any) -> Any:
    with ragcache.documents(LONG, query=QUESTION):
        return llm.invoke(messages, **kwargs)


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def test_P03_four_markers_of_the_callers_leave_no_room(portal, tenant, claude, claude_api):
    llm = wrap(claude(), portal, tenant=tenant, markers="always")
    prompt = long_prompt(part("A", **MARK), part("B", **MARK), question=MARK)
    ask_claude(llm, prompt, tools=anthropic_tools(False, True))
    (body,) = claude_api.bodies
    assert len(markers(body)) == 4
    assert "cache_control" in body["tools"][1]
    assert [("cache_control" in p) for p in body["messages"][0]["content"]] == [False, True]


def test_P03_a_free_place_goes_to_the_last_document(portal, tenant, claude, claude_api):
    llm = wrap(claude(), portal, tenant=tenant, markers="always")
    for system in ((part("A", **MARK), part("B", **MARK)), ()):
        ask_claude(llm, long_prompt(*system), tools=anthropic_tools(bool(system)))
    for body, count in zip(claude_api.bodies, (4, 1), strict=True):
        assert len(markers(body)) == count
        marked = [p for p in body["messages"][0]["content"] if "cache_control" in p]
        assert marked[-1]["text"].rstrip().endswith(LONG[0].page_content.strip()[-20:])
        assert QUESTION not in marked[-1]["text"]
    again = ask_claude(llm, long_prompt(), tools=anthropic_tools(False), ragcache={"refresh": True})
    assert again.content
    assert len(markers(claude_api.bodies[-1])) == 1


def test_P04_lifetimes_never_grow_along_the_request(portal, tenant, claude, claude_api):
    llm = wrap(claude(), portal, tenant=tenant, markers="always", marker_ttl_s=3600)
    ask_claude(llm, long_prompt(), tools=anthropic_tools(True))
    ask_claude(llm, long_prompt())
    ask_claude(llm, long_prompt(question=MARK))
    lives = [[m.get("ttl", "5m") for m in markers(b)] for b in claude_api.bodies]
    assert lives == [["5m", "5m"], ["1h"], ["1h", "5m"]]


ALL_FIELDS = KNOWN_FIELDS | {"cache_salt", "prompt_cache_key"}


@pytest.mark.parametrize(
    ("provider", "sent"),
    [("vllm", {"cache_salt"}), ("openai", {"prompt_cache_key"}), (None, set()), ("generic", set())],
)
def test_P06_each_provider_gets_its_own_fields_only(
    portal, tenant, chat, upstream, retriever, provider, sent
):
    upstream.allowed = ALL_FIELDS
    rag_chain(wrap(chat(), portal, tenant=tenant, provider=provider), retriever).invoke(QUESTION)
    (body,) = upstream.bodies
    extra = {"cache_salt", "prompt_cache_key"} & set(body)
    assert extra <= sent
    if provider == "vllm":
        assert extra == sent


def test_P06_a_fallback_gets_no_field_of_the_first(
    portal, tenant, chat, upstream, claude, claude_api
):
    claude_api.status = 529
    first = claude(temperature=0.2)
    second = chat(temperature=0.2)
    llm = wrap(first.with_fallbacks([second]), portal, tenant=tenant, markers="always")
    prompt = long_prompt()
    before = copy.deepcopy(prompt)
    answer = ask_claude(llm.bind_tools([rate_quote]), prompt)
    assert answer.content == "The fee is 80."
    (body,) = upstream.bodies
    assert "cache_control" not in str(body)
    assert body["temperature"] == 0.2
    assert body["tools"][0]["function"]["name"] == "rate_quote"
    assert prompt == before


def test_P07_the_salt_is_ours_and_differs_by_tenant(portal, tenant, chat, upstream, retriever):
    upstream.allowed = ALL_FIELDS
    for who in (f"{tenant}/eu@prod", f"{tenant}/eu@stage", "x" * 300, None, None):
        llm = wrap(chat(), portal, tenant=who, provider="vllm")
        with ragcache.documents(TARIFF, query=QUESTION):
            llm.invoke(MESSAGES, extra_body={"cache_salt": "someone/else"})
    salts = [b["cache_salt"] for b in upstream.bodies]
    assert len(set(salts)) == 5  # without a tenant each call has one of its own
    assert all(16 <= len(s) <= 128 and s.replace("-", "").replace("_", "").isalnum() for s in salts)
    assert not any(tenant in s or s == "someone/else" for s in salts)


# --- S, L: keys and layout -----------------------------------------------------------------------

SHAPING: dict[str, dict[str, Any]] = {
    "schema": {"response_format": {"type": "json_object"}},
    "tool_choice": {"tool_choice": "none", "tools": []},
    "model": {"model": "another"},
    "max_tokens": {"max_tokens": 5},
    "stop": {"stop": ["x"]},
    "temperature": {"temperature": 0.3},
    "seed": {"seed": 7},
    "n": {"n": 2},
    "logit_bias": {"logit_bias": {"5": 1}},
    "unknown option": {"extra_body": {"foo": 1}},
}
NOT_SHAPING: dict[str, dict[str, Any]] = {
    "user": {"user": "ann"},
    "metadata": {"config": {"metadata": {"request": "1"}}},
    "timeout": {"timeout": 30},
}


@pytest.mark.parametrize("change", SHAPING)
def test_S05_what_shapes_the_answer_is_part_of_the_key(change, portal, tenant, chat, upstream):
    upstream.allowed = KNOWN_FIELDS | {"foo"}
    llm = wrap(chat(), portal, tenant=tenant)
    ask(llm)
    ask(llm, **SHAPING[change])
    assert len(upstream.bodies) == 2


@pytest.mark.parametrize("change", NOT_SHAPING)
def test_S05_what_does_not_shape_it_is_not(change, portal, tenant, chat, upstream):
    llm = wrap(chat(), portal, tenant=tenant)
    ask(llm)
    ask(llm, **NOT_SHAPING[change])
    assert len(upstream.bodies) == 1


def test_S05_messages_shape_it_and_streaming_does_not(portal, tenant, chat, upstream):
    llm = wrap(chat(), portal, tenant=tenant)
    ask(llm)
    with ragcache.documents(TARIFF, query=QUESTION):
        streamed = list(llm.stream(MESSAGES))
    assert "".join(c.content for c in streamed) == "The fee is 80."
    assert len(upstream.bodies) == 1
    ask(llm, [SystemMessage("Answer in French."), MESSAGES[1]])
    ask(llm, [SystemMessage("Answer in German."), MESSAGES[1]])
    assert len(upstream.bodies) == 3
    for number in ("1", "2"):
        call = AIMessage("", tool_calls=[{"name": "quote", "args": {}, "id": number}])
        ask(llm, [*MESSAGES, call, ToolMessage("80", tool_call_id=number)])
    assert len(upstream.bodies) == 5


def test_L04_a_marked_turn_keeps_its_text_and_type(portal, tenant, claude, claude_api):
    llm = wrap(claude(), portal, tenant=tenant, markers="always")
    turn1 = HumanMessage(f"{join(LONG)}\n\nlist the ports\n")
    with ragcache.documents(LONG, query="list the ports"):
        reply = llm.invoke([turn1])
        turn2 = HumanMessage(f"{join(LONG[::-1])}\n\nand the fees?")
        llm.invoke([turn1, reply, turn2])
    one, two = (b["messages"] for b in claude_api.bodies)
    assert "cache_control" in str(one[0])
    bare = [{k: v for k, v in p.items() if k != "cache_control"} for p in one[0]["content"]]
    assert two[0]["content"] == bare
    assert "".join(p["text"] for p in bare).endswith("list the ports\n")


def test_L04_documents_of_somebody_elses_prompt_are_sent_verbatim(portal, tenant, chat, upstream):
    documents = [
        Document(page_content="Port A\r\nPort B\r\n"),
        Document(page_content="Port C\r\nPort D "),
    ]
    text = f"{join(documents)}\n\nlist the ports\n"
    with ragcache.documents(documents, query="list the ports"):
        wrap(chat(), portal, tenant=tenant).invoke(text)
    sent = upstream.bodies[0]["messages"][-1]["content"]
    assert all(d.page_content in sent for d in documents)
    assert sorted(sent) == sorted(text)
    assert sent.endswith("list the ports\n")


def test_L10_template_marks_in_documents_are_text(portal, tenant, chat, upstream):
    text = (
        "Set {REGION} and {{tenant}}; {% for x in y %}{{ 7*7 }}{% endfor %}; "
        "cost ${PRICE}, 100%s, \\1, {0} {}"
    )
    system, question = 'JSON like {"a": 1} is fine.', "What does {REGION} do?"
    prompt = ChatPromptTemplate.from_messages(
        [SystemMessage(system), ("human", "{context}\n\n{question}")]
    )
    retriever = ListRetriever(documents=[Document(page_content=text), *TARIFF])
    chain = {"context": retriever | join, "question": RunnablePassthrough()} | prompt
    (chain | wrap(chat(), portal, tenant=tenant)).invoke(question)
    sent = "\n".join(m["content"] for m in upstream.bodies[0]["messages"])
    assert sent.count(text) == sent.count(question) == sent.count(system) == 1
    assert "49" not in sent


# --- M: usage ------------------------------------------------------------------------------------


def test_M01_cached_tokens_are_counted_once(portal, tenant, chat, upstream, claude, events):
    upstream.answer(
        Reply(
            usage={
                "prompt_tokens": 6000,
                "completion_tokens": 250,
                "total_tokens": 6250,
                "prompt_tokens_details": {"cached_tokens": 4096},
            }
        )
    )
    for llm in (chat(), claude()):
        ask(wrap(llm, portal, tenant=tenant))
    openai, anthropic = (e.usage for e in events if isinstance(e, Called))
    assert (openai.input_tokens, openai.cached_tokens, openai.output_tokens) == (6000, 4096, 250)
    assert (anthropic.input_tokens, anthropic.cached_tokens) == (6000, 5000)
    assert anthropic.cache_write_tokens == 880
    assert openai.computed_tokens == 1904
    money = [savings.of_call(openai, PRICES("", "o")), savings.of_call(anthropic, PRICES("", "n"))]
    assert [round(m.cost, 6) for m in money] == [0.007856, 0.008910]
    assert [round(m.saved, 6) for m in money] == [0.006144, 0.012840]


def test_M03_a_hit_costs_nothing_and_says_so(portal, tenant, chat, upstream, events):
    usage = {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}
    upstream.answer(Reply(usage=usage))
    llm = wrap(chat(), portal, tenant=tenant)
    ask(llm)
    called = ask(llm)
    with ragcache.documents(TARIFF, query=QUESTION):
        chunks = list(llm.stream(MESSAGES))
    streamed = chunks[0]
    for chunk in chunks[1:]:
        streamed += chunk
    for message in (called, streamed):
        assert message.usage_metadata["total_tokens"] == 0
        assert told(message)["hit"] == "exact"
        assert "token_usage" not in message.response_metadata
    answered = [e for e in events if isinstance(e, Answered)]
    assert [e.saved_usage.input_tokens for e in answered if e.saved_usage] == [900, 900]
    spared = [savings.of_hit(e.saved_usage, PRICES("", "o")) for e in answered if e.saved_usage]
    assert [(m.cost, round(m.saved, 6)) for m in spared] == [(0.0, 0.0034), (0.0, 0.0034)]
    assert all(e.answer.usage.total_tokens == 0 for e in answered if e.saved_usage)
    assert all(e.answer.ttft_s is not None for e in answered)
    assert len([e for e in events if isinstance(e, Called)]) == 1
    assert len([e for e in events if isinstance(e, LookedUp)]) == 3


# --- tenants -------------------------------------------------------------------------------------


def test_A_missing_tenant_turns_the_answer_cache_off_and_layout_stays_on(
    portal, chat, upstream, retriever, caplog
):
    chain = rag_chain(wrap(chat(), portal), retriever)
    answers = [chain.invoke(QUESTION) for _ in range(3)]
    assert len(upstream.bodies) == 3
    assert len({b["messages"][-1]["content"] for b in upstream.bodies}) == 1
    assert all(told(a)["stored"] is False for a in answers)
    assert len([r for r in caplog.records if "no tenant" in r.message]) == 1


def test_A_tenants_by_call_never_meet_and_conflict_is_an_error(
    portal, tenant, chat, upstream, retriever
):
    chain = rag_chain(wrap(chat(), portal), retriever)
    for config in ({"metadata": {"tenant_id": tenant}}, {"configurable": {"tenant_id": tenant}}):
        chain.invoke(QUESTION, config)
    assert len(upstream.bodies) == 1
    chain.invoke(QUESTION, {"metadata": {"tenant_id": f"{tenant}-other"}})
    assert len(upstream.bodies) == 2
    bound = rag_chain(wrap(chat(), portal, tenant=tenant), retriever)
    with pytest.raises(RequestError, match="two tenants"):
        bound.invoke(QUESTION, {"metadata": {"tenant_id": f"{tenant}-other"}})


def test_A_a_model_that_cannot_be_seen_is_an_error(portal, tenant, chat):
    llm = chat()
    with pytest.raises(ragcache.RagCacheError, match="no chat model"):
        wrap(RunnableLambda(llm.invoke), portal, tenant=tenant)
