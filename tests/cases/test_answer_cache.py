"""Field cases of the answer cache at the core: what the key holds, faults, many at once."""

from __future__ import annotations

import asyncio
import time

import pytest

from ragcache.embedders import Batched
from ragcache.errors import IsolationError, StoreUnavailableError, TargetError
from ragcache.events import Answered
from ragcache.pipeline import Budgets
from ragcache.store.embedded import ensure
from ragcache.store.postgres import PostgresStore
from ragcache.types import Document, Message, Request
from tests.doubles.embedder import TableEmbedder
from tests.doubles.upstream import KNOWN_FIELDS, Reply
from tests.fixtures_pipeline import until_asking

D1 = Document(text="Free time is 4 days.", id="d1", source="terms.pdf")
D2 = Document(text="The office opens at nine.", id="d2", source="hours.pdf")
D7 = Document(text="Parking is free.", id="d7", source="parking.pdf")
QUESTION = "What changed lately at the port?"


def ask(tenant: str, **fields) -> Request:
    return Request(**({"tenant": tenant, "question": QUESTION, "documents": (D1, D2)} | fields))


@pytest.fixture
def answers(upstream):
    """An upstream that takes any field, since ragcache passes unknown ones on."""
    upstream.allowed = KNOWN_FIELDS | {"foo"}
    upstream.answer(Reply(text="Free time is 4 days."))
    return upstream


# --- the key -------------------------------------------------------------------------------------

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def schema(field: str) -> dict:
    return {"type": "json_schema", "json_schema": {"name": field, "schema": {"required": [field]}}}


def turns(call: str) -> tuple[Message, ...]:
    called = {"id": call, "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return (
        Message(role="user", content="Look it up."),
        Message(role="assistant", content="", tool_calls=(called,)),
        Message(role="tool", content="found", tool_call_id=call),
    )


BASE = {
    "system": "Answer in French.",
    "params": {"response_format": schema("color"), "temperature": 0},
    "history": turns("c1"),
    "standalone": QUESTION,
}
SHAPING = {
    "schema": {"params": BASE["params"] | {"response_format": schema("wheels")}},
    "tools": {"tools": (TOOL,)},
    "tool_choice": {"params": BASE["params"] | {"tool_choice": "none"}},
    "model": {"model": "another"},
    "max_tokens": {"params": BASE["params"] | {"max_tokens": 5}},
    "stop": {"params": BASE["params"] | {"stop": ["x"]}},
    "temperature": {"params": BASE["params"] | {"temperature": 1}},
    "seed": {"params": BASE["params"] | {"seed": 7}},
    "n": {"params": BASE["params"] | {"n": 2}},
    "logit_bias": {"params": BASE["params"] | {"logit_bias": {"50256": -100}}},
    "system": {"system": "Answer in German."},
    "turn": {"history": turns("c2"), "standalone": None},
    "unknown": {"params": BASE["params"] | {"foo": 1}},
    "locale": {"locale": "de"},
    "version": {"version": "2"},
}
NOT_SHAPING = {
    "stream": {"params": BASE["params"] | {"stream": True}},
    "user": {"params": BASE["params"] | {"user": "u-77"}},
    "metadata": {"metadata": {"request_id": "r-1"}},
    "timeout": {"params": BASE["params"] | {"timeout": 5}},
    "volatile": {"volatile": {"date": "2031-04-03"}},
    "session": {"session": "s-1"},
}


@pytest.mark.parametrize("change", SHAPING)
async def test_S05_what_shapes_the_answer_is_a_miss(make, answers, tenant, change):
    cache = await make(embedder=None)
    assert (await cache.answer(ask(tenant, **BASE))).status.stored
    assert (await cache.answer(ask(tenant, **BASE))).status.hit == "exact"
    changed = await cache.answer(ask(tenant, **(BASE | SHAPING[change])))
    assert changed.status.hit is None
    assert len(answers.bodies) == 2


@pytest.mark.parametrize("change", NOT_SHAPING)
async def test_S05_what_does_not_shape_it_is_a_hit(make, answers, tenant, change):
    cache = await make(embedder=None)
    await cache.answer(ask(tenant, **BASE))
    assert (await cache.answer(ask(tenant, **(BASE | NOT_SHAPING[change])))).status.hit == "exact"


async def test_S07_another_window_or_other_documents_are_no_hit(make, answers, tenant):
    cache = await make()
    filters = {"since": "2031-01-01", "folder": "port"}
    assert (await cache.answer(ask(tenant, scope=filters))).status.stored

    async def asked(**fields):
        return (await cache.answer(ask(tenant, no_store=True, **fields))).status

    other = await asked(scope=filters | {"since": "2035-01-01"})
    assert other.hit is None
    repaired = Document(text="Free time is 5 days.", id="d1", source="terms.pdf")
    context = await asked(scope=filters, documents=(repaired, D2))
    assert (context.hit, context.reason) == (None, "document_changed")
    assert context.reason != other.reason, "scope and context are told apart"
    assert (await asked(scope=filters, documents=(D2, D1))).hit == "exact"
    assert (await asked(scope=filters, documents=(D1, D2, D7))).hit
    outranked = await asked(scope=filters, documents=(D7, D1, D2))
    assert (outranked.hit, outranked.reason) == (None, "new_evidence")
    turned = dict(reversed(filters.items()))
    assert (await asked(scope=turned)).hit == "exact"


# --- parts that are slow, hang or fail -----------------------------------------------------------


class Sleepy(TableEmbedder):
    """A synchronous embedder of 300 ms, in a thread as every such one is."""

    async def embed(self, texts):
        await asyncio.to_thread(time.sleep, 0.3)
        return await super().embed(texts)


async def test_A06_a_slow_embedder_stalls_nobody(make, answers, tenant):
    cache = await make(embedder=Batched(Sleepy(), window_s=0.3))  # a busy machine is late
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticker = asyncio.create_task(tick())
    questions = ["What is open at the port?", "Who pays for the berth?"]
    await asyncio.gather(*(cache.answer(ask(tenant, question=q)) for q in questions))
    ticker.cancel()
    assert ticks >= 20
    assert cache._parts.embedder.batches == 1, "both waited for one batch, not one for the other"


async def test_A06_an_embedder_that_never_answers_costs_its_deadline(make, answers, tenant):
    class Never(TableEmbedder):
        async def embed(self, texts):
            await asyncio.sleep(3600)

    cache = await make(embedder=Never(), budgets=Budgets(store_s=10, embed_s=0.2, put_s=0))
    answer = await cache.answer(ask(tenant))
    assert answer.text == "Free time is 4 days."
    assert answer.status.reason == "embed_timeout"


async def test_A06_a_store_that_cannot_be_reached_is_passed_by(make, answers, tenant):
    store = PostgresStore("host=/nonexistent user=x dbname=x", open_wait_s=0.1)
    cache = await make(store=store)
    answer = await cache.answer(ask(tenant))
    assert answer.text == "Free time is 4 days."
    assert (answer.status.fwd, answer.status.reason) == ("bypass", "store_error")


async def test_A06_a_store_that_fails_on_writing_alone_breaks_nothing(
    make, answers, tenant, monkeypatch
):
    async def failing(*_):
        raise StoreUnavailableError("the disk is full")

    cache = await make()
    monkeypatch.setattr(cache.store, "put", failing)
    answer = await cache.answer(ask(tenant))
    assert answer.text == "Free time is 4 days."
    assert (answer.status.stored, answer.status.store_reason) == (False, "store_error")


async def test_A06_caching_resumes_when_the_database_is_back(
    make, answers, tenant, tmp_path_factory, caplog
):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="rc-a06-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        ensured = ensure(Path(folder) / "pg")
        ensured.server.stop()
        cache = await make(store=PostgresStore(ensured.dsns.app, pool_wait_s=2, lookup_timeout_s=2))
        assert len([r for r in caplog.records if "caching is off" in r.message]) == 1
        assert (await cache.answer(ask(tenant))).status.hit is None
        await asyncio.to_thread(ensured.server.start)
        async with asyncio.timeout(30):
            while (await cache.answer(ask(tenant))).status.hit != "exact":
                await asyncio.sleep(0.05)
        await asyncio.to_thread(ensured.server.stop)


async def test_A06_isolation_errors_are_not_passed_by(make, answers, tenant, monkeypatch):
    async def mixed(*_, **__):
        raise IsolationError("rows of another tenant are visible")

    cache = await make()
    monkeypatch.setattr(cache.store, "find_exact", mixed)
    with pytest.raises(IsolationError):
        await cache.answer(ask(tenant))


# --- many at once --------------------------------------------------------------------------------


async def test_A07_five_equal_questions_are_one_call(make, answers, tenant, events):
    cache = await make()
    answers.answer(Reply(text="Free time is 4 days.", delay_s=0.05))
    got = await asyncio.gather(*(cache.answer(ask(tenant)) for _ in range(5)))
    assert len(answers.bodies) == 1
    assert {a.text for a in got} == {"Free time is 4 days."}
    assert len({id(a) for a in got}) == 5
    told = [e.answer.status for e in events if isinstance(e, Answered)]
    assert (sum(s.collapsed for s in told), sum(bool(s.hit) for s in told)) == (4, 0)


async def test_A07_the_others_are_answered_when_the_leader_is_cancelled(make, answers, tenant):
    cache = await make()
    answers.answer(Reply(text="Free time is 4 days.", delay_s=0.3))
    tasks = [asyncio.create_task(cache.answer(ask(tenant))) for _ in range(5)]
    await until_asking(cache, 5)
    tasks[0].cancel()
    got = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(got[0], asyncio.CancelledError)
    assert [a.text for a in got[1:]] == ["Free time is 4 days."] * 4
    assert len(answers.bodies) == 1


async def test_A07_an_error_of_the_leader_reaches_all_and_is_not_stored(make, answers, tenant):
    cache = await make()
    answers.answer(Reply(status=400, delay_s=0.05), Reply(text="Free time is 4 days."))
    got = await asyncio.gather(
        *(cache.answer(ask(tenant)) for _ in range(5)), return_exceptions=True
    )
    assert {type(error) for error in got} == {TargetError}
    assert (await cache.answer(ask(tenant))).text == "Free time is 4 days."
    assert len(answers.bodies) == 2


async def test_A07_two_tenants_are_two_calls(make, answers, tenant):
    cache = await make()
    answers.answer(Reply(text="Free time is 4 days.", delay_s=0.05))
    await asyncio.gather(*(cache.answer(ask(t)) for t in (tenant, f"{tenant}-b")))
    assert len(answers.bodies) == 2
