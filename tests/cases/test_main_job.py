"""Field cases through the whole pipeline: layout, keys, admission, isolation, streaming."""

from __future__ import annotations

import asyncio
import time

import pytest

from ragcache.errors import ConfigError, TargetError
from ragcache.events import LookedUp
from ragcache.keys import normal_text
from ragcache.layout import labels_of
from ragcache.lookup import LookupPolicy
from ragcache.types import Document, Request
from tests.doubles.bodies import lcp, render
from tests.doubles.upstream import Reply

D1 = Document(text="Demurrage is 80 per day.", source="tariff.pdf")
D2 = Document(text="Free time is 4 days.", source="terms.pdf")
D3 = Document(text="Weekends count as days.", source="calendar.pdf")
D4 = Document(text="Claims go to the desk.", source="claims.pdf")
QUESTION = "What is the demurrage fee?"


def ask(tenant: str, question: str = QUESTION, **fields) -> Request:
    fields.setdefault("documents", (D1, D2, D3))
    return Request(tenant=tenant, question=question, **fields)


# --- layout --------------------------------------------------------------------------------------

SYSTEM = "You are Orla, a freight clerk.\n{}Answer only from the documents."
CLOCKS = [("2031-04-02T09:14:07Z", "2031-04-02T09:15:08Z"), ("23:59:59Z", "00:00:01Z")]


@pytest.mark.parametrize("times", CLOCKS)
async def test_L01_a_declared_clock_stands_behind_the_documents(make, upstream, tenant, times):
    cache = await make()
    for moment in times:
        await cache.answer(
            ask(tenant, system=SYSTEM.format(""), volatile={"Now": moment}, no_cache=True)
        )
    one, two = (render(b) for b in upstream.bodies)
    end = max(one.rindex(d.text.encode()) + len(d.text) for d in (D1, D2, D3))
    assert lcp(one, two) >= end
    for body, moment in zip((one, two), times, strict=True):
        assert body.count(moment.encode()) == 1
        assert body.index(moment.encode()) > end


async def test_L01_an_undeclared_clock_is_sent_as_it_is_and_named(make, upstream, tenant):
    cache = await make()
    systems = [SYSTEM.format(f"Now: {moment}\n") for moment in CLOCKS[0]]
    answers = [await cache.answer(ask(tenant, system=s, no_cache=True)) for s in systems]
    for body, system in zip(upstream.bodies, systems, strict=True):
        assert body["messages"][0] == {"role": "system", "content": system}
    offset = systems[0].index("09:14:07") + 4
    notes = [note for note in answers[1].reuse.notes if "system message" in note]
    assert notes, answers[1].reuse.notes
    assert str(offset) in notes[0]
    assert not [n for n in answers[0].reuse.notes if "first difference" in n]


SCORED = (
    [(D3, 0.81), (D1, 0.80), (D4, 0.77), (D2, 0.70)],
    [(D1, 0.812), (D2, 0.79), (D3, 0.78), (D4, 0.701)],
)


@pytest.mark.parametrize("rank_note", [False, True])
async def test_L02_retrieval_order_and_score_do_not_reach_the_prefix(
    make, upstream, tenant, rank_note
):
    cache = await make(layout={"rank_note": rank_note})
    answers = []
    for rows in SCORED:
        documents = tuple(Document(text=d.text, source=d.source, score=score) for d, score in rows)
        answers.append(await cache.answer(ask(tenant, documents=documents, no_cache=True)))
    one, two = (render(b) for b in upstream.bodies)
    end = max(two.rindex(d.text.encode()) + len(d.text) for d in (D1, D2, D3, D4))
    if rank_note:
        assert lcp(one, two) >= end
    else:
        assert one == two
    for mark in (b"0.81", b"0.812", b"score"):
        assert mark not in one + two
    assert [d.score for d in answers[0].documents] == [s for _, s in SCORED[0]]


async def test_L08_duplicates_are_one_block_and_overlaps_are_left_alone(make, upstream, tenant):
    cache = await make()
    x1 = Document(text="Free time is 4 days.", source="tariff.pdf")
    y1 = Document(text="Free time is 4 days. After that 80 per day.", source="tariff.pdf")
    x2 = Document(text="Free time is 4 days.", source="old.html")
    upstream.answer(Reply(text="Four days."))
    await cache.answer(ask(tenant, documents=(x1, y1, x2), no_cache=True))
    body = render(upstream.bodies[0]).decode()
    assert body.count("Free time is 4 days.") == 2
    assert body.count("Free time is 4 days. After that 80 per day.") == 1
    label = next(iter(_label_before(body, "Free time is 4 days.\n")), None)
    upstream.answer(Reply(text=f"Four days [{label}]."))
    answer = await cache.answer(ask(tenant, documents=(x1, y1, x2), no_cache=True))
    assert answer.citations[label].sources == ("tariff.pdf", "old.html")
    alone = Document(text="Free time is 4 days.", source="old.html")
    await cache.answer(ask(tenant, documents=(alone,), no_cache=True))
    assert label in _label_before(render(upstream.bodies[-1]).decode(), "Free time is 4 days.")


def _label_before(body: str, text: str) -> list[str]:
    import re

    head = body[: body.index(text)]
    return re.findall(r"\d{3,9}", head)[-1:]


async def test_L09_random_ids_and_metadata_order_change_nothing(make, upstream, tenant):
    cache = await make()
    for id_, metadata in (
        ("n-81f3", {"title": "Tariff", "page": 2, "last_accessed_date": "2031-04-01"}),
        ("n-c20a", {"page": 2, "last_accessed_date": "2031-04-02", "title": "Tariff"}),
    ):
        document = Document(text=D1.text, source="tariff.pdf", id=id_, metadata=metadata)
        await cache.answer(ask(tenant, documents=(document,), no_cache=True))
    assert render(upstream.bodies[0]) == render(upstream.bodies[1])
    body = render(upstream.bodies[0]).decode()
    assert "last_accessed_date" not in body
    assert "2031-04-0" not in body
    assert "Tariff" in body


async def test_L09_a_document_without_id_has_the_same_label_in_a_new_process(
    make, upstream, tenant
):
    import subprocess
    import sys

    program = (
        "from ragcache.types import *; from ragcache.layout import *\n"
        "r = Request(tenant='t', question='q', documents=(Document(text='x', source='tariff.pdf'),))\n"
        "print(arrange(r, policy=LayoutPolicy()).blocks[0].label)"
    )
    labels = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": ""},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert len(labels) == 1
    assert labels.pop()


# --- matching ------------------------------------------------------------------------------------


async def test_S03_unlike_questions_miss_and_the_threshold_itself_hits(
    make, upstream, tenant, table
):
    cache = await make(lookup={"threshold": 0.9, "gates": "off"})
    for text, similarity in {
        "What is the sum 1+1?": 1.0,
        "Who tells the funniest jokes?": 0.35,
        "What is one plus one?": 0.9,
        "What does one plus one make?": 0.9 - 1e-3,
    }.items():
        table.place(text, similarity)
    upstream.answer(Reply(text="two"))
    await cache.answer(ask(tenant, "What is the sum 1+1?"))
    joke = await cache.answer(ask(tenant, "Who tells the funniest jokes?", no_store=True))
    assert joke.status.fwd == "miss"
    assert joke.status.reason == "below_threshold"
    assert (
        await cache.answer(ask(tenant, "What does one plus one make?", no_store=True))
    ).status.hit is None
    hit = await cache.answer(ask(tenant, "What is one plus one?", no_store=True))
    assert hit.status.hit == "semantic"


@pytest.mark.parametrize("value", [-0.1, 1.7, float("nan"), "0.9"])
def test_S03_a_threshold_out_of_range_is_refused_at_start(value):
    with pytest.raises(ConfigError, match="threshold"):
        LookupPolicy(threshold=value)


async def test_S03_a_request_can_tighten_the_threshold_but_not_lower_it(make, tenant, table):
    cache = await make(lookup={"threshold": 0.92, "uncertified_threshold": 0.92, "gates": "off"})
    texts = ("Where is the port?", "Where does the port lie?", "Where do ships anchor?")
    stored, near, far = texts
    for text, similarity in zip(texts, (1.0, 0.95, 0.85), strict=True):
        table.place(text, similarity)
    await cache.answer(ask(tenant, stored))

    async def hit(text: str, threshold: float | None) -> str | None:
        request = ask(tenant, text, threshold=threshold, no_store=True)
        return (await cache.answer(request)).status.hit

    assert await hit(far, 0.50) is None
    assert await hit(near, 0.99) is None
    assert await hit(near, None) == "semantic"


async def test_S09_rewordings_hit_and_the_first_two_embed_nothing(make, upstream, tenant, table):
    cache = await make()
    stored = "What is the leave carry-over limit?"
    table.place(stored, 1.0)
    await cache.answer(ask(tenant, stored))
    calls = len(table.texts)
    for same in ("  What is the leave carry-over limit ??", "what is the leave carry-over limit?"):
        assert (await cache.answer(ask(tenant, same))).status.hit == "exact"
    assert len(table.texts) == calls
    for text, similarity in {
        "Please tell me what is the leave carry-over limit": 0.97,
        "what's the leave carry over limit": 0.98,
    }.items():
        table.place(text, similarity)
        answer = await cache.answer(ask(tenant, text))
        assert answer.status.hit == "semantic", (text, answer.status)
    assert len(upstream.bodies) == 1


# --- admission -----------------------------------------------------------------------------------

BAD = {
    "400": Reply(status=400),
    "429": Reply(status=429),
    "500": Reply(status=500),
    "error object": Reply(error={"message": "overloaded"}),
    "empty": Reply(text=""),
    "content filter": Reply(finish_reason="content_filter"),
}


@pytest.mark.parametrize("name", BAD)
async def test_C01_a_failed_answer_is_passed_on_and_never_stored(make, upstream, tenant, name):
    cache = await make()
    upstream.answer(BAD[name])  # as often as a safe retry asks
    request = ask(tenant)
    if name in ("empty", "content filter"):
        first = await cache.answer(request)
        assert first.status.stored is False
        assert first.status.store_reason
    else:
        with pytest.raises(TargetError) as failed:
            await cache.answer(request)
        assert failed.value.status == (int(name) if name.isdigit() else None)
    upstream.answer(Reply())
    second = await cache.answer(request)
    assert second.status.fwd == "miss"
    assert second.text == "The fee is 80."
    assert (await cache.answer(request)).status.hit == "exact"


async def test_C01_a_timeout_is_passed_on_and_never_stored(make, upstream, tenant):
    from ragcache.targets.openai import OpenAITarget

    target = OpenAITarget(model="fake", base_url=upstream.base_url, timeout_s=0.2)
    cache = await make(target=target)
    upstream.answer(Reply(delay_s=1.0), Reply())
    with pytest.raises(TargetError, match="in time"):
        await cache.answer(ask(tenant))
    assert (await cache.answer(ask(tenant))).status.fwd == "miss"
    await target.close()


async def test_C01_an_answer_the_caller_flags_as_error_is_not_stored(make, tenant):
    cache = await make()
    first = await cache.answer(ask(tenant, metadata={"error": True}))
    assert first.status.store_reason == "error"
    assert (await cache.answer(ask(tenant))).status.fwd == "miss"


PIECES = ["The ", "fee ", "is ", "80", "."]


async def test_C02_a_truncated_answer_is_not_stored(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(finish_reason="length"), Reply())
    first = await cache.answer(ask(tenant))
    assert first.status.store_reason == "finish_reason"
    assert (await cache.answer(ask(tenant))).status.fwd == "miss"


@pytest.mark.parametrize("fault", ["leaves", "breaks", "without end"])
async def test_C02_a_stream_cut_short_is_not_stored(make, upstream, tenant, fault):
    cache = await make()
    upstream.answer(
        {
            "leaves": Reply(pieces=PIECES, piece_delay_s=0.05),
            "breaks": Reply(pieces=PIECES, break_after=3),
            "without end": Reply(pieces=PIECES, without_end=True),
        }[fault],
        Reply(),
    )
    seen = 0
    stream = cache.stream(ask(tenant))
    try:
        async for chunk in stream:
            seen += bool(chunk.text)
            if fault == "leaves" and seen == 2:
                break
    except TargetError:
        assert fault == "breaks"
    await stream.aclose()
    for _ in range(100):
        if upstream.closed == upstream.opened:
            break
        await asyncio.sleep(0.02)
    assert upstream.closed == upstream.opened
    assert (await cache.answer(ask(tenant))).status.fwd == "miss"


async def test_C03_an_answer_from_nothing_is_not_stored(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(text="I could not find this."), Reply())
    first = await cache.answer(ask(tenant, documents=()))
    assert first.status.stored is False
    body = render(upstream.bodies[0]).decode()
    assert "None" not in body
    assert body.count("[]") == 1  # the test's own rendering of the absent tools
    second = await cache.answer(ask(tenant, documents=(D1,)))
    assert second.status.fwd == "miss"
    assert second.status.stored is True


# --- isolation -----------------------------------------------------------------------------------


async def test_T01_another_tenant_never_gets_the_answer(make, upstream, tenant, table):
    cache = await make()
    other = f"{tenant}-b"
    texts = ["What is my balance?", "word " * 300 + "?"]
    for group, text in enumerate(texts):
        table.place(text, 1.0, group)
        upstream.answer(Reply(text="It is 5432."))
        documents = (Document(text="The balance is 5432."),)
        await cache.answer(ask(tenant, text, documents=documents))
        reads = [
            await cache.answer(ask(other, t, documents=documents, no_store=True))
            for t in (text, text.upper())
        ]
        assert [r.status.hit for r in reads] == [None, None]
        assert (await cache.answer(ask(tenant, text, documents=documents))).status.hit == "exact"


async def test_T01_purging_a_tenant_removes_its_entries_only(make, tenant):
    cache = await make()
    other = f"{tenant}-b"
    for name in (tenant, other):
        await cache.answer(ask(name))
    assert await cache.store.purge(tenant) == 1
    assert (await cache.answer(ask(tenant, no_store=True))).status.hit is None
    assert (await cache.answer(ask(other))).status.hit == "exact"


async def test_T01_concurrent_questions_of_two_tenants_are_two_calls(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(delay_s=0.1))
    await asyncio.gather(*(cache.answer(ask(t)) for t in (tenant, f"{tenant}-b", tenant)))
    assert len(upstream.bodies) == 2


# --- vectors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["", "   ", "?"])
async def test_V01_a_blank_question_is_neither_embedded_nor_stored(make, tenant, table, question):
    cache = await make()
    for _ in range(2):
        answer = await cache.answer(ask(tenant, question))
        assert answer.status.fwd == "bypass"
        assert answer.status.stored is False
    assert table.texts == []


class _Broken:
    """An embedder that returns what no embedder should."""

    id, dimensions = "table", 16

    def __init__(self, vector) -> None:
        self.vector = vector

    async def open(self) -> None: ...

    async def embed(self, texts):
        from ragcache.types import Embedding

        return [Embedding(text=t, vector=self.vector) for t in texts]

    async def close(self) -> None: ...


@pytest.mark.parametrize("fault", ["zero", "nan", "short"])
async def test_V01_a_vector_that_is_none_is_a_bypass_and_is_not_written(make, tenant, table, fault):
    import numpy as np

    sound = await make()
    table.place("stored question", 1.0)
    await sound.answer(ask(tenant, "stored question"))
    vector = np.zeros(7 if fault == "short" else 16, dtype=np.float32)
    if fault != "zero":
        vector[:] = np.nan if fault == "nan" else 1.0
    broken = await make(embedder=_Broken(vector), lookup={"gates": "off", "evidence": False})
    answer = await broken.answer(ask(tenant, "another question altogether"))
    assert answer.text == "The fee is 80."
    assert answer.status.hit is None
    assert answer.status.fwd == "bypass"


# --- streaming -----------------------------------------------------------------------------------


async def test_A01_a_stream_is_stored_replayed_and_not_held_back(make, upstream, tenant):
    cache = await make()
    upstream.answer(Reply(text="The fee is 80.", pieces=PIECES, piece_delay_s=0.05))
    first_at = None
    texts = []
    async for chunk in cache.stream(ask(tenant)):
        if chunk.text and first_at is None:
            first_at = time.perf_counter()
        texts.append(chunk.text)
        last = chunk
    assert first_at < upstream.finished_at - 0.1
    assert last.answer.status.fwd == "miss"
    assert last.completion.finish_reason == "stop"
    again = [chunk async for chunk in cache.stream(ask(tenant))]
    assert again[-1].completion.finish_reason == "stop"
    assert again[-1].answer.status.hit == "exact"
    whole = await cache.answer(ask(tenant))
    assert "".join(texts) == "".join(c.text for c in again) == whole.text == "The fee is 80."
    assert len(upstream.bodies) == 1


async def test_every_outcome_is_told_by_an_event(make, tenant, events):
    cache = await make()
    for _ in range(2):
        await cache.answer(ask(tenant))
    names = [type(e).__name__ for e in events]
    assert names == [
        "LookedUp",
        "LaidOut",
        "Called",
        "Admitted",
        "Answered",
        "LookedUp",
        "Answered",
    ]
    assert [
        e.outcome.reason for e in events if isinstance(e, LookedUp) and hasattr(e.outcome, "reason")
    ]


def test_labels_of_a_layout_name_every_block():
    from ragcache.layout import LayoutPolicy, arrange

    layout = arrange(ask("t"), policy=LayoutPolicy())
    assert set(labels_of(layout)) == {b.label for b in layout.blocks}
    assert normal_text("a \r\nb\r") == "a\nb"
