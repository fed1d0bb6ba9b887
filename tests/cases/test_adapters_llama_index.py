"""Field cases through LlamaIndex: adapters, request contracts, keys, layout, usage."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    CacheControl,
    CachePoint,
    ChatMessage,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool, RetrieverTool
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.dispatcher import instrument_tags
from pydantic import BaseModel, Field

import ragcache
from llama_index_ragcache import CanonicalOrder, RagCacheLLM, wrap
from ragcache.errors import RequestError
from ragcache.events import Answered, Called, LookedUp
from ragcache.store.postgres import PostgresStore
from ragcache.targets.openai import OpenAITarget
from ragcache.telemetry import savings
from ragcache.types import Document
from tests.doubles.anthropic import markers
from tests.doubles.embedder import TableEmbedder
from tests.doubles.roles import NoSystem, StrictRoles
from tests.doubles.upstream import KNOWN_FIELDS, Reply, serving
from tests.fixtures_llama_index import TARIFF, ListRetriever, engine_over, nodes_of
from tests.fixtures_pipeline import until_asking

pytestmark = [
    pytest.mark.llama_index,
    pytest.mark.usefixtures("loop_of_synchronous_calls"),
    # LlamaIndex's own agents use names that pydantic and its workflows have deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

#: Of the cases: an OpenAI-style model and an Anthropic-style one, in dollars per million tokens.
PRICES = savings.prices_of(
    {
        "o": {"input": 2.0, "read": 0.5, "output": 8.0},
        "n": {"input": 3.0, "read": 0.3, "write": 3.75, "output": 15.0},
    }
)
QUESTION = "What is the demurrage fee?"
DOCUMENTS = [Document(text=text, source=source) for source, text in TARIFF]


def joined(documents: list[Document]) -> str:
    return "\n\n".join(d.text for d in documents)


MESSAGES = [
    ChatMessage(role=MessageRole.SYSTEM, content="Answer from the documents only."),
    ChatMessage(role=MessageRole.USER, content=f"{joined(DOCUMENTS)}\n\nQuestion: {QUESTION}"),
]


def ask(llm: Any, messages: Any = None, **kwargs: Any) -> Any:
    with ragcache.documents(DOCUMENTS, query=QUESTION):
        return llm.chat(messages or MESSAGES, **kwargs)


def told(response: Any) -> dict[str, Any]:
    return response.additional_kwargs["ragcache"]


class Recorder(BaseEventHandler):
    """Keeps what a screen would be told."""

    names: list[str] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "Recorder"

    def handle(self, event: Any, **_: Any) -> None:
        if event.class_name().startswith("LLMChat"):
            self.names.append(event.class_name())


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    root = get_dispatcher()
    found = Recorder()
    root.add_event_handler(found)
    yield found
    root.event_handlers.remove(found)


# --- A: adapters ---------------------------------------------------------------------------------


async def test_A01_streams_are_cached_and_a_hit_is_not_silent(
    portal, tenant, open_ai, upstream, recorder
):
    upstream.answer(Reply(pieces=["The fee", " is", " 80."], piece_delay_s=0.1))
    llm = wrap(open_ai(), portal, tenant=tenant)
    first = []
    with ragcache.documents(DOCUMENTS, query=QUESTION):
        async for piece in await llm.astream_chat(MESSAGES):
            if piece.delta and not first:
                assert upstream.finished_at is None, "the first piece waited for the last one"
            first.append(piece)
        recorder.names.clear()
        second = [piece async for piece in await llm.astream_chat(MESSAGES)]
        names = list(recorder.names)
        third = await llm.achat(MESSAGES)
        fourth = llm.chat(MESSAGES)
    assert len(upstream.bodies) == 1
    texts = ["".join(p.delta or "" for p in pieces) for pieces in (first, second)]
    assert texts == [third.message.content, fourth.message.content] == ["The fee is 80."] * 2
    assert second[-1].message.content == "The fee is 80."
    assert second[-1].raw["choices"][0]["finish_reason"] == "stop"
    assert told(second[-1])["hit"] == "exact"
    assert told(first[-1])["stored"] is True
    assert names.count("LLMChatStartEvent") == names.count("LLMChatEndEvent") == 1
    assert names.count("LLMChatInProgressEvent") >= 1


class FreshIds(BaseRetriever):
    """Nodes of the same text, with other ids and another order of metadata at each retrieval."""

    calls = 0

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.calls += 1
        found = []
        for source, text in TARIFF:
            metadata = {"file_path": source, "page": 2}
            if self.calls % 2:
                metadata = dict(reversed(metadata.items()))
            node = TextNode(
                id_=str(uuid.uuid4()),
                text=text,
                metadata=metadata,
                excluded_llm_metadata_keys=["page", "file_path"],
            )
            found.append(NodeWithScore(node=node, score=0.5))
        return found


def test_A03_ids_of_nodes_are_not_part_of_the_key(portal, tenant, open_ai, upstream):
    engine = engine_over(wrap(open_ai(), portal, tenant=tenant), FreshIds())
    for _ in range(3):
        engine.query(QUESTION)
    assert len(upstream.bodies) == 1


async def test_A03_a_conversation_run_again_is_answered_from_the_cache(
    portal, tenant, open_ai, upstream
):
    llm = wrap(open_ai(), portal, tenant=tenant)
    for _ in range(2):
        engine = ContextChatEngine.from_defaults(FreshIds(), llm=llm)
        for question in (QUESTION, "How long is the free time in every port?"):
            await engine.achat(question)
    assert len(upstream.bodies) == 2


def test_A03_settings_are_read_at_each_call(portal, tenant, open_ai, upstream):
    llm = wrap(open_ai(temperature=0.0), portal, tenant=tenant)
    ask(llm)
    llm.temperature = 0.9
    assert "hit" not in told(ask(llm))
    assert [b["temperature"] for b in upstream.bodies] == [0.0, 0.9]


def called(arguments: dict[str, Any], number: str = "1") -> list[ChatMessage]:
    call = ToolCallBlock(tool_call_id=number, tool_name="quote", tool_kwargs=arguments)
    result = {"tool_call_id": number, "name": "quote"}
    return [
        ChatMessage(role=MessageRole.ASSISTANT, blocks=[TextBlock(text=""), call]),
        ChatMessage(role=MessageRole.TOOL, content="80", additional_kwargs=result),
    ]


def test_A03_equal_tool_calls_are_equal_whatever_their_key_order(portal, tenant, open_ai, upstream):
    llm = wrap(open_ai(), portal, tenant=tenant)
    for arguments in ({"port": "A", "days": 2}, {"days": 2, "port": "A"}):
        last = ask(llm, [*MESSAGES, *called(arguments)])
    assert told(last)["hit"] == "exact"
    assert len(upstream.bodies) == 1


class Tariff(BaseModel):
    fee: int


class WiderTariff(BaseModel):
    fee: int
    days: int = 0


def test_A05_structured_output_hits_and_is_an_object_again(
    portal, tenant, open_ai, upstream, flapping
):
    upstream.answer(Reply(text='{"fee": 80}'))
    llm = wrap(open_ai(), portal, tenant=tenant)
    engine = engine_over(llm, flapping, output_cls=Tariff)
    one, two = engine.query(QUESTION), engine.query(QUESTION)
    assert one.response == two.response == Tariff(fee=80)
    assert len(upstream.bodies) == 1
    engine_over(llm, flapping, output_cls=WiderTariff).query(QUESTION)
    assert len(upstream.bodies) == 2


async def test_A05_a_function_agent_goes_through_the_cache(
    portal, tenant, open_ai_like, brain, events
):
    inner = open_ai_like(api_base=brain.base_url)
    llm = wrap(inner, portal, tenant=tenant)
    tool = RetrieverTool.from_defaults(ListRetriever(TARIFF), name="search", description="Search.")
    for _ in range(2):
        await FunctionAgent(tools=[tool], llm=llm).run(QUESTION)
    assert llm.metadata == inner.metadata
    assert llm.metadata.is_function_calling_model
    assert brain.bodies[0]["tools"][0]["function"]["name"] == "search"
    assert len([e for e in events if isinstance(e, LookedUp)]) == 4
    asked = [b for b in brain.bodies if b["messages"][-1]["role"] != "tool"]
    assert len(asked) == 2, "a turn that calls tools is never replayed"
    assert len(brain.bodies) == 3, "the answer of the second run is"


async def test_A06_a_slow_embedder_stalls_no_other_task(
    portal_of, tenant, open_ai, upstream, table, flapping
):
    table.delay_s = 0.3
    engine = engine_over(wrap(open_ai(), portal_of(), tenant=tenant), flapping)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticker = asyncio.create_task(tick())
    await engine.aquery(QUESTION)
    ticker.cancel()
    assert ticks >= 10, "at 300 ms of waiting there is time for thirty"


async def test_A06_parts_that_fail_or_hang_leave_an_answer(
    portal_of, tenant, open_ai, upstream, events, flapping
):
    from ragcache.layout import LayoutPolicy
    from ragcache.pipeline import Budgets, Policies

    hanging = Policies(
        layout=LayoutPolicy(), budgets=Budgets(store_s=10.0, embed_s=0.05, put_s=10.0)
    )
    portals = {
        "embed_timeout": portal_of(embedder=TableEmbedder(delay_s=5.0), policies=hanging),
        "store_error": portal_of(
            store=PostgresStore("postgresql://nobody@127.0.0.1:9/none", pool_wait_s=0.2)
        ),
    }
    for reason, portal in portals.items():
        llm = wrap(open_ai(), portal, tenant=tenant)
        assert str(await engine_over(llm, flapping).aquery(QUESTION)) == "The fee is 80."
        found = [e.outcome.reason for e in events if isinstance(e, LookedUp)]
        assert found[-1] == reason


async def test_A07_equal_questions_at_once_are_asked_once(portal, tenant, open_ai, upstream):
    upstream.answer(Reply(delay_s=0.1))
    llm = wrap(open_ai(), portal, tenant=tenant)
    with ragcache.documents(DOCUMENTS, query=QUESTION):
        answers = await asyncio.gather(*(llm.achat(MESSAGES) for _ in range(5)))
    assert len(upstream.bodies) == 1
    assert [a.message.content for a in answers] == ["The fee is 80."] * 5
    assert len({id(a) for a in answers}) == len({id(a.message) for a in answers}) == 5
    assert [bool(told(a).get("collapsed")) for a in answers].count(True) == 4
    spent = [a.additional_kwargs["prompt_tokens"] for a in answers]
    assert sorted(spent) == [0, 0, 0, 0, 100]


async def test_A07_followers_are_answered_when_the_first_leaves(portal, tenant, open_ai, upstream):
    answer = threading.Event()
    upstream.answer(Reply(hold=answer))
    llm = wrap(open_ai(), portal, tenant=tenant)
    with ragcache.documents(DOCUMENTS, query=QUESTION):
        first = asyncio.create_task(llm.achat(MESSAGES))
        await until_asking(portal.cache, 1)
        others = [asyncio.create_task(llm.achat(MESSAGES)) for _ in range(4)]
        await until_asking(portal.cache, 5)
        first.cancel()
        answer.set()
        answers = await asyncio.gather(*others)
    with contextlib.suppress(asyncio.CancelledError):
        await first
    assert [a.message.content for a in answers] == ["The fee is 80."] * 4
    assert len(upstream.bodies) == 1


async def test_A07_an_error_reaches_all_and_is_not_stored(portal, tenant, open_ai, upstream):
    import openai

    upstream.answer(Reply(status=500, delay_s=0.1))
    llm = wrap(open_ai(), portal, tenant=tenant)
    with ragcache.documents(DOCUMENTS, query=QUESTION):
        failed = await asyncio.gather(
            *(llm.achat(MESSAGES) for _ in range(5)), return_exceptions=True
        )
        assert all(isinstance(e, openai.InternalServerError) for e in failed)
        assert len(upstream.bodies) == 1
        upstream.answer(Reply())
        assert (await llm.achat(MESSAGES)).message.content == "The fee is 80."
    assert len(upstream.bodies) == 2


async def test_A07_tenants_do_not_share_a_call(portal, tenant, open_ai, upstream):
    upstream.answer(Reply(delay_s=0.1))
    with ragcache.documents(DOCUMENTS, query=QUESTION):
        await asyncio.gather(
            *(wrap(open_ai(), portal, tenant=f"{tenant}-{at}").achat(MESSAGES) for at in range(2))
        )
    assert len(upstream.bodies) == 2


# --- P: what the provider takes ------------------------------------------------------------------


def conversation(question: str = "q2") -> list[ChatMessage]:
    rows = [("system", "A"), ("system", "B"), ("user", "q1"), ("assistant", "a1")]
    rows += [("system", "note C"), ("user", f"{joined(DOCUMENTS)}\n\n{question}")]
    return [ChatMessage(role=role, content=content) for role, content in rows]


def test_P01_number_roles_and_order_of_messages_stay(portal, tenant, open_ai, upstream):
    llm = wrap(open_ai(), portal, tenant=tenant)
    with ragcache.documents(DOCUMENTS[::-1], query="q2"):
        llm.chat(conversation())
    sent = upstream.bodies[0]["messages"]
    given = conversation()
    assert [m["role"] for m in sent] == [m.role.value for m in given]
    assert [m["content"] for m in sent[:-1]] == [m.content for m in given[:-1]]
    assert sorted(sent[-1]["content"]) == sorted(given[-1].content)


@pytest.mark.parametrize(("host", "double"), [("strict", StrictRoles), ("no_system", NoSystem)])
def test_P01_a_strict_host_is_sent_the_roles_it_takes(portal, tenant, host, double):
    with serving(double()) as strict:
        target = OpenAITarget(model="fake", base_url=strict.base_url, roles=host)
        llm = RagCacheLLM(cache=portal, target=target, tenant=tenant)
        with ragcache.documents(DOCUMENTS, query="q2"):
            reply = llm.chat(conversation()).message
            llm.chat([*conversation(), reply, ChatMessage(role="user", content="q3")])
        portal.run(target.close())
    one, two = (b["messages"] for b in strict.bodies)
    texts = "\n".join(m["content"] for m in one)
    assert texts.index("A\n\nB") < texts.index("a1") < texts.index("note C") < texts.index("q2")
    assert two[: len(one)] == one


def test_P01_the_next_turn_begins_with_the_bytes_of_this_one(portal, tenant, open_ai, upstream):
    llm = wrap(open_ai(), portal, tenant=tenant)
    first = conversation()
    with ragcache.documents(DOCUMENTS[::-1], query="q2"):
        reply = llm.chat(first).message
        more = ChatMessage(role=MessageRole.USER, content="and then?")
        llm.chat([*first, reply, more])
    one, two = (b["messages"] for b in upstream.bodies)
    assert one[-1]["content"] != first[-1].content, "nothing was moved: this test shows nothing"
    assert two[: len(one)] == one


LONG = [
    Document(text=f"Rule {at}: " + "the fee is charged for each day in port. " * 40)
    for at in range(6)
]
POINT = CachePoint(cache_control=CacheControl(type="ephemeral"))


def long_prompt(*ahead: Any, question: Any = ()) -> list[ChatMessage]:
    blocks = [TextBlock(text=f"{joined(LONG)}\n\n"), TextBlock(text=QUESTION), *question]
    earlier = [
        ChatMessage(role=MessageRole.USER, blocks=[TextBlock(text="Hello."), *ahead[:1]]),
        ChatMessage(role=MessageRole.ASSISTANT, blocks=[TextBlock(text="Hi."), *ahead[1:]]),
    ]
    return [*earlier, ChatMessage(role=MessageRole.USER, blocks=blocks)]


def anthropic_tools(*marked: bool) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {}}
    mark = {"cache_control": {"type": "ephemeral"}}
    return [
        {"name": f"tool_{at}", "description": "x", "input_schema": schema, **(mark if m else {})}
        for at, m in enumerate(marked)
    ]


def ask_claude(llm: Any, messages: Any, **kwargs: Any) -> Any:
    with ragcache.documents(LONG, query=QUESTION):
        return llm.chat(messages, **kwargs)


def test_P03_four_markers_of_the_callers_leave_no_room(portal, tenant, claude_llm, claude_api):
    llm = wrap(claude_llm(), portal, tenant=tenant, markers="always")
    prompt = long_prompt(POINT, POINT, question=[POINT])
    ask_claude(llm, prompt, tools=anthropic_tools(False, True))
    (body,) = claude_api.bodies
    assert len(markers(body)) == 4
    assert "cache_control" in body["tools"][1]
    assert ["cache_control" in p for p in body["messages"][2]["content"]] == [False, True]


def test_P03_a_free_place_goes_to_the_last_document(portal, tenant, claude_llm, claude_api):
    llm = wrap(claude_llm(), portal, tenant=tenant, markers="always")
    for ahead in ((POINT, POINT), ()):
        ask_claude(llm, long_prompt(*ahead), tools=anthropic_tools(bool(ahead)))
    for body, count in zip(claude_api.bodies, (4, 1), strict=True):
        assert len(markers(body)) == count
        marked = [p for p in body["messages"][2]["content"] if "cache_control" in p]
        assert marked[-1]["text"].rstrip().endswith("charged for each day in port.")
        assert QUESTION not in marked[-1]["text"]
    ask_claude(llm, long_prompt(), tools=anthropic_tools(False), ragcache={"refresh": True})
    assert len(markers(claude_api.bodies[-1])) == 1


def test_P04_lifetimes_never_grow_along_the_request(portal, tenant, claude_llm, claude_api):
    llm = wrap(claude_llm(), portal, tenant=tenant, markers="always", marker_ttl_s=3600)
    ask_claude(llm, long_prompt(), tools=anthropic_tools(True))
    ask_claude(llm, long_prompt())
    ask_claude(llm, long_prompt(question=[POINT]))
    lives = [[m.get("ttl", "5m") for m in markers(b)] for b in claude_api.bodies]
    assert lives == [["5m", "5m"], ["1h"], ["1h", "5m"]]


def test_P04_an_llm_that_marks_by_itself_gets_no_marker_of_ours(
    portal, tenant, claude_llm, claude_api
):
    llm = wrap(claude_llm(cache_idx=0), portal, tenant=tenant, markers="always")
    ask_claude(llm, long_prompt())
    assert len(markers(claude_api.bodies[0])) == 1


ALL_FIELDS = KNOWN_FIELDS | {"cache_salt", "prompt_cache_key"}


@pytest.mark.parametrize(
    ("provider", "sent"),
    [("vllm", {"cache_salt"}), ("openai", {"prompt_cache_key"}), (None, set()), ("generic", set())],
)
def test_P06_each_provider_gets_its_own_fields_only(
    portal, tenant, open_ai_like, upstream, flapping, provider, sent
):
    upstream.allowed = ALL_FIELDS
    engine_over(wrap(open_ai_like(), portal, tenant=tenant, provider=provider), flapping).query(
        QUESTION
    )
    (body,) = upstream.bodies
    extra = {"cache_salt", "prompt_cache_key"} & set(body)
    assert extra <= sent
    if provider == "vllm":
        assert extra == sent


def test_P06_the_callers_messages_are_left_alone(portal, tenant, claude_llm, claude_api, open_ai):
    prompt = long_prompt()
    before = copy.deepcopy(prompt)
    claude_api.status = 529
    with contextlib.suppress(Exception):
        ask_claude(wrap(claude_llm(), portal, tenant=tenant, markers="always"), prompt)
    assert claude_api.bodies
    assert prompt == before
    with ragcache.documents(LONG, query=QUESTION):
        wrap(open_ai(temperature=0.2), portal, tenant=tenant).chat(prompt)
    assert prompt == before


def test_P07_the_salt_is_ours_and_differs_by_tenant(portal, tenant, open_ai_like, upstream):
    upstream.allowed = ALL_FIELDS
    for who in (f"{tenant}/eu@prod", f"{tenant}/eu@stage", "x" * 300, None, None):
        llm = wrap(open_ai_like(), portal, tenant=who, provider="vllm")
        ask(llm, extra_body={"cache_salt": "someone/else"})
    salts = [b["cache_salt"] for b in upstream.bodies]
    assert len(set(salts)) == 5  # without a tenant each call has one of its own
    assert all(16 <= len(s) <= 128 and s.replace("-", "").replace("_", "").isalnum() for s in salts)
    assert not any(tenant in s or s == "someone/else" for s in salts)


def test_P07_own_llms_salt_is_derived_too(portal, tenant, upstream, own_target):
    upstream.allowed = ALL_FIELDS
    own_target.provider = "vllm"
    llm = RagCacheLLM(cache=portal, target=own_target, tenant=tenant)
    ask(llm, cache_salt="someone/else")
    assert upstream.bodies[0]["cache_salt"] != "someone/else"


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
    "metadata": {"metadata": {"request": "1"}},
    "timeout": {"timeout": 30},
}


@pytest.mark.parametrize("change", SHAPING)
def test_S05_what_shapes_the_answer_is_part_of_the_key(change, portal, tenant, open_ai, upstream):
    upstream.allowed = KNOWN_FIELDS | {"foo"}
    llm = wrap(open_ai(), portal, tenant=tenant)
    ask(llm)
    ask(llm, **SHAPING[change])
    assert len(upstream.bodies) == 2


@pytest.mark.parametrize("change", NOT_SHAPING)
def test_S05_what_does_not_shape_it_is_not(change, portal, tenant, open_ai, upstream):
    llm = wrap(open_ai(), portal, tenant=tenant)
    ask(llm)
    ask(llm, **NOT_SHAPING[change])
    assert len(upstream.bodies) == 1


def test_S05_messages_shape_it_and_streaming_does_not(portal, tenant, open_ai, upstream):
    llm = wrap(open_ai(), portal, tenant=tenant)
    ask(llm)
    with ragcache.documents(DOCUMENTS, query=QUESTION):
        streamed = list(llm.stream_chat(MESSAGES))
    assert streamed[-1].message.content == "The fee is 80."
    assert len(upstream.bodies) == 1
    for language in ("French", "German"):
        system = ChatMessage(role=MessageRole.SYSTEM, content=f"Answer in {language}.")
        ask(llm, [system, MESSAGES[1]])
    assert len(upstream.bodies) == 3
    for number in ("1", "2"):
        ask(llm, [*MESSAGES, *called({}, number)])
    assert len(upstream.bodies) == 5


def test_S05_two_llms_of_other_settings_do_not_share(
    portal, tenant, open_ai, open_ai_like, upstream
):
    ask(wrap(open_ai(), portal, tenant=tenant))
    ask(wrap(open_ai(model="gpt-4o"), portal, tenant=tenant))
    ask(wrap(open_ai(additional_kwargs={"seed": 3}), portal, tenant=tenant))
    ask(wrap(open_ai_like(model="gpt-4o-mini"), portal, tenant=tenant))
    assert len(upstream.bodies) == 4


def test_S05_secrets_and_limits_of_an_llm_shape_nothing(portal, tenant, open_ai, upstream):
    ask(wrap(open_ai(), portal, tenant=tenant))
    ask(wrap(open_ai(api_key="another", timeout=7.0, max_retries=1), portal, tenant=tenant))
    assert len(upstream.bodies) == 1


def test_L04_an_earlier_turn_keeps_its_text_and_type(portal, tenant, claude_llm, claude_api):
    llm = wrap(claude_llm(), portal, tenant=tenant, markers="always")
    turn1 = ChatMessage(content=f"{joined(LONG)}\n\nlist the ports\n")
    with ragcache.documents(LONG, query="list the ports"):
        reply = llm.chat([turn1]).message
        turn2 = ChatMessage(content=f"{joined(LONG[::-1])}\n\nand the fees?")
        llm.chat([turn1, reply, turn2])
    one, two = (b["messages"] for b in claude_api.bodies)
    assert "cache_control" in str(one[0])
    bare = [{k: v for k, v in p.items() if k != "cache_control"} for p in one[0]["content"]]
    assert two[0]["content"] == bare
    assert "".join(p["text"] for p in bare).endswith("list the ports\n")


def test_L04_documents_of_somebody_elses_prompt_are_sent_verbatim(
    portal, tenant, open_ai, upstream
):
    documents = [Document(text="Port A\r\nPort B\r\n"), Document(text="Port C\r\nPort D ")]
    text = f"{joined(documents)}\n\nlist the ports\n"
    with ragcache.documents(documents, query="list the ports"):
        wrap(open_ai(), portal, tenant=tenant).chat([ChatMessage(content=text)])
    sent = upstream.bodies[0]["messages"][-1]["content"]
    assert all(d.text in sent for d in documents)
    assert sorted(sent) == sorted(text)
    assert sent.endswith("list the ports\n")


def test_L10_template_marks_in_documents_are_text(portal, tenant, open_ai, upstream):
    text = (
        "Set {REGION} and {{tenant}}; {% for x in y %}{{ 7*7 }}{% endfor %}; "
        "cost ${PRICE}, 100%s, \\1, {0} {}"
    )
    system, question = 'JSON like {"a": 1} is fine.', "What does {REGION} do?"
    llm = wrap(open_ai(system_prompt=system), portal, tenant=tenant)
    engine_over(llm, ListRetriever([("odd.md", text), *TARIFF])).query(question)
    sent = "\n".join(m["content"] for m in upstream.bodies[0]["messages"])
    assert sent.count(text) == sent.count(question) == sent.count(system) == 1
    assert "49" not in sent


# --- M: usage ------------------------------------------------------------------------------------


def test_M01_cached_tokens_are_counted_once(portal, tenant, open_ai, upstream, claude_llm, events):
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
    for llm in (open_ai(), claude_llm()):
        ask(wrap(llm, portal, tenant=tenant))
    openai, anthropic = (e.usage for e in events if isinstance(e, Called))
    assert (openai.input_tokens, openai.cached_tokens, openai.output_tokens) == (6000, 4096, 250)
    assert (anthropic.input_tokens, anthropic.cached_tokens) == (6000, 5000)
    assert anthropic.cache_write_tokens == 880
    assert openai.computed_tokens == 1904
    money = [savings.of_call(openai, PRICES("", "o")), savings.of_call(anthropic, PRICES("", "n"))]
    assert [round(m.cost, 6) for m in money] == [0.007856, 0.008910]
    assert [round(m.saved, 6) for m in money] == [0.006144, 0.012840]


def test_M03_a_hit_costs_nothing_and_says_so(portal, tenant, open_ai, upstream, events):
    usage = {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}
    upstream.answer(Reply(usage=usage))
    llm = wrap(open_ai(), portal, tenant=tenant)
    ask(llm)
    whole = ask(llm)
    with ragcache.documents(DOCUMENTS, query=QUESTION):
        streamed = list(llm.stream_chat(MESSAGES))[-1]
    for response in (whole, streamed):
        assert response.additional_kwargs["total_tokens"] == 0
        assert response.raw["usage"]["prompt_tokens"] == 0
        assert told(response)["hit"] == "exact"
        assert "similarity" not in told(response)
    answered = [e for e in events if isinstance(e, Answered)]
    assert [e.saved_usage.input_tokens for e in answered if e.saved_usage] == [900, 900]
    spared = [savings.of_hit(e.saved_usage, PRICES("", "o")) for e in answered if e.saved_usage]
    assert [(m.cost, round(m.saved, 6)) for m in spared] == [(0.0, 0.0034), (0.0, 0.0034)]
    assert all(e.answer.usage.total_tokens == 0 for e in answered if e.saved_usage)
    assert all(e.answer.ttft_s is not None for e in answered)
    assert len([e for e in events if isinstance(e, Called)]) == 1
    assert len([e for e in events if isinstance(e, LookedUp)]) == 3


def test_M03_a_paraphrase_is_a_semantic_hit_through_an_engine(
    portal, tenant, open_ai, upstream, table, events
):
    asked, again = "What is the demurrage fee per day?", "How much is the demurrage fee per day?"
    table.place(asked, 1.0)
    table.place(again, 0.99)
    engine = engine_over(wrap(open_ai(), portal, tenant=tenant), FreshIds())
    engine.query(asked)
    engine.query(again)
    assert len(upstream.bodies) == 1
    assert [e.answer.status.hit for e in events if isinstance(e, Answered)] == [None, "semantic"]
    assert table.texts == [asked, again], "only the question is the vector"


# --- tenants -------------------------------------------------------------------------------------


def test_A_missing_tenant_turns_the_answer_cache_off_and_layout_stays_on(
    portal, open_ai, upstream, flapping, caplog
):
    engine = engine_over(wrap(open_ai(), portal), flapping)
    for _ in range(3):
        engine.query(QUESTION)
    assert len(upstream.bodies) == 3
    assert len({b["messages"][-1]["content"] for b in upstream.bodies}) == 1
    assert len([r for r in caplog.records if "no tenant" in r.message]) == 1


async def test_A_tenants_by_tags_never_meet_and_conflict_is_an_error(
    portal, tenant, open_ai, upstream, flapping
):
    engine = engine_over(wrap(open_ai(), portal), flapping)
    for _ in range(2):
        with instrument_tags({"tenant_id": tenant}):
            await engine.aquery(QUESTION)
    assert len(upstream.bodies) == 1
    with instrument_tags({"tenant_id": f"{tenant}-other"}):
        engine.query(QUESTION)
    assert len(upstream.bodies) == 2
    bound = wrap(open_ai(), portal, tenant=tenant)
    with (
        instrument_tags({"tenant_id": f"{tenant}-other"}),
        pytest.raises(RequestError, match="two tenants"),
    ):
        bound.chat(MESSAGES)


async def test_A_tags_reach_the_steps_of_an_agent(portal, tenant, open_ai_like, brain, events):
    llm = wrap(open_ai_like(api_base=brain.base_url), portal)

    def quote(port: str) -> str:
        """Quote a rate."""
        return port

    agent = FunctionAgent(tools=[FunctionTool.from_defaults(quote)], llm=llm)
    with instrument_tags({"tenant_id": tenant, "user_id": "ann"}):
        await agent.run(QUESTION)
    scopes = {(e.scope.tenant, e.scope.principal) for e in events if isinstance(e, LookedUp)}
    assert scopes == {(tenant, "ann")}


def test_A_controls_of_a_call(portal, tenant, open_ai, upstream):
    llm = wrap(open_ai(), portal, tenant=tenant)
    ask(llm)
    assert told(ask(llm, ragcache={"no_cache": True}))["reason"] == "no_cache"
    with instrument_tags({"ragcache": {"refresh": True}}):
        assert told(ask(llm))["reason"] == "refresh"
    assert len(upstream.bodies) == 3
    with pytest.raises(RequestError, match="sharing"):
        ask(llm, ragcache={"sharing": "public"})
    with pytest.raises(RequestError, match="colour"):
        wrap(open_ai(), portal, tenant=tenant, colour="red")


def test_A_a_changed_document_ends_the_answer_whatever_it_is_called(
    portal, tenant, open_ai, upstream
):
    """By its file, its node, or the document that it was cut from."""
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo

    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc-7")}
    node = TextNode(
        id_="n-1",
        text="The demurrage fee is 80 per day.",
        metadata={"file_path": "fees.md"},
        relationships=source,
    )

    class One(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return [NodeWithScore(node=node, score=1.0)]

    for mode in ("compact", "simple_summarize"):
        engine = engine_over(wrap(open_ai(), portal, tenant=tenant), One(), response_mode=mode)
        engine.query(QUESTION)
        for name in ("fees.md", "n-1", "doc-7"):
            upstream.bodies.clear()
            engine.query(QUESTION)
            assert not upstream.bodies, (mode, name)
            portal.run(portal.cache.store.change(tenant, [name]))
            engine.query(QUESTION)
            assert len(upstream.bodies) == 1, (mode, name)


def test_A_canonical_order_is_for_those_who_want_it(open_ai, upstream):
    nodes = [nodes_of(TARIFF), nodes_of(TARIFF[::-1])]
    ordered = [CanonicalOrder().postprocess_nodes(found) for found in nodes]
    texts = [[n.node.get_content() for n in found] for found in ordered]
    assert texts[0] == texts[1]
    assert sorted(texts[0]) == sorted(text for _, text in TARIFF)
    flapping = ListRetriever(TARIFF)
    engine = engine_over(open_ai(), flapping, node_postprocessors=[CanonicalOrder()])
    for _ in range(3):
        engine.query(QUESTION)
    assert len({b["messages"][-1]["content"] for b in upstream.bodies}) == 1
