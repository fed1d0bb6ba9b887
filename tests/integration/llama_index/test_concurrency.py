"""Many requests at once, through every door: no documents cross, and each order is the one."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import llama_index_ragcache.asking as asking
from llama_index_ragcache import RagCacheLLM, wrap
from llama_index_ragcache.capture import CONTEXTS
from ragcache.layout import LayoutPolicy
from ragcache.pipeline import Pipeline, Policies
from ragcache.portal import Portal
from ragcache.targets.openai import OpenAITarget
from tests.doubles.brain import Brain
from tests.doubles.upstream import serving
from tests.llama_index_rows import ALL_AT_ONCE, ROWS, World, answer, documents_of, read

pytestmark = [
    pytest.mark.llama_index,
    # LlamaIndex's own agents use names that pydantic and its workflows have deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

#: Its context is a list, printed by Python with new ids each time: nothing in it can be moved.
UNMOVED = {"simple_summarize"}
#: Rows of each kind, checked without the wrapper too.
CONTROLS = (
    "compact, asynchronous stream",
    "tree_summarize",
    "structured answer",
    "context chat",
    "FunctionAgent with a retriever tool",
    "ReActAgent with a retriever tool",
    "workflow with a prompt made by hand",
)


@dataclass
class Counts:
    """What went wrong in a row."""

    bodies: int = 0
    with_documents: int = 0
    crossed: int = 0
    not_canonical: int = 0
    others_visible: int = 0
    unseen: int = 0
    errors: list[BaseException] = field(default_factory=list)


@pytest.fixture
def brain() -> Iterator[Brain]:
    """A model that knows the protocols of all rows."""
    thinking = Brain()
    thinking.script = answer
    with serving(thinking) as running:
        yield running


@pytest.fixture
def sorting_portal() -> Iterator[Portal]:
    """A cache that only lays prompts out, in an order that needs no state."""
    policies = Policies(layout=LayoutPolicy(ordering="sorted"))
    with Portal(lambda: Pipeline(policies=policies)) as portal:
        yield portal


@dataclass(frozen=True)
class Sight:
    """Of one call: whose documents it could see, and whose stand in its prompt."""

    visible: frozenset[int]
    standing: frozenset[int]
    asked: frozenset[int]


@pytest.fixture
def sights(monkeypatch) -> list[Sight]:
    """What each call saw."""
    seen: list[Sight] = []
    whole = asking._visible

    def watched(retrievals: Any, messages: Any) -> Any:
        found = whole(retrievals, messages)
        visible = [read({"messages": [{"content": s.text}]}).requests for s in found]
        prompt = read({"messages": [{"content": m.text()} for m in messages]})
        seen.append(
            Sight(
                visible=frozenset().union(*visible),
                standing=prompt.requests,
                asked=prompt.asked,
            )
        )
        return found

    monkeypatch.setattr(asking, "_visible", watched)
    return seen


async def run_row(name: str, world: World, count: int) -> list[Any]:
    if name in ALL_AT_ONCE:
        return [await ALL_AT_ONCE[name](world, count)]
    work = [ROWS[name](world, request) for request in range(count)]
    return await asyncio.gather(*work, return_exceptions=True)


def counted(brain: Brain, results: list[Any], sights: list[Sight]) -> Counts:
    counts = Counts(errors=[r for r in results if isinstance(r, BaseException)])
    for body in brain.bodies:
        found = read(body)
        counts.bodies += 1
        counts.with_documents += bool(found.requests)
        counts.crossed += len(found.requests | found.asked) > 1
    counts.not_canonical = in_order(brain)
    counts.others_visible = sum(bool(s.visible - s.standing - s.asked) for s in sights)
    counts.unseen = sum(bool(s.standing - s.visible) for s in sights)
    return counts


def in_order(brain: Brain) -> int:
    """How many bodies with several documents have them in another order than the sorted one."""
    wrong = 0
    for body in brain.bodies:
        found = read(body)
        if len(found.order) > 1 and len(found.requests) == 1:
            wrong += found.order != expected(next(iter(found.requests)), body)
    return wrong


def expected(request: int, body: dict[str, Any]) -> tuple[int, ...]:
    """The order in which the documents' blocks sort by content, as they stand in this body."""
    text = "\n".join(str(m.get("content") or "") for m in body["messages"])
    shown = {}
    for place, document in enumerate(documents_of(request)):
        labelled = f"file_path: crane-{request}.md\n\n{document}"
        shown[place] = labelled if labelled in text else document
    return tuple(sorted(shown, key=lambda at: hashlib.sha256(shown[at].encode()).hexdigest()))


async def counts_of(name: str, count: int, brain: Brain, llm: Any, sights: list[Sight]) -> Counts:
    results = await run_row(name, World(llm=llm, functions=llm), count)
    counts = counted(brain, results, sights)
    assert not counts.errors, (name, counts.errors[:2])
    assert counts.with_documents >= count, (name, counts)
    return counts


async def check(name: str, count: int, brain: Brain, llm: Any, sights: list[Sight]) -> None:
    counts = await counts_of(name, count, brain, llm, sights)
    assert counts.crossed == counts.others_visible == counts.unseen == 0, (name, counts)
    assert name in UNMOVED or counts.not_canonical == 0, (name, counts)


@pytest.fixture
def llm(brain, sorting_portal, open_ai_like) -> Any:
    """One wrapped LLM for all requests."""
    return wrap(open_ai_like(api_base=brain.base_url), sorting_portal, tenant="acme")


@pytest.mark.parametrize("name", [*ROWS, *ALL_AT_ONCE])
async def test_nothing_crosses(name, brain, llm, sights) -> None:
    await check(name, 20, brain, llm, sights)


@pytest.mark.prove
@pytest.mark.parametrize("name", [*ROWS, *ALL_AT_ONCE])
async def test_nothing_crosses_200(name, brain, llm, sights) -> None:
    await check(name, 200, brain, llm, sights)


def apart_from_order(bodies: list[dict[str, Any]]) -> list[str]:
    """Bodies without the order of the lines within a message, and of calls made at once."""
    told = []
    for body in bodies:
        plain = json.loads(json.dumps(body))
        for message in plain["messages"]:
            message["content"] = sorted(str(message.get("content")).split("\n"))
        told.append(json.dumps(plain, sort_keys=True))
    return sorted(told)


@pytest.mark.parametrize("name", [name for name in ROWS if name not in UNMOVED])
async def test_raw_and_wrapped_bodies_are_equal_apart_from_order(
    name, brain, llm, open_ai_like
) -> None:
    said, sent = [], []
    for one in (open_ai_like(api_base=brain.base_url), llm):
        brain.bodies = []
        said.append(str(await ROWS[name](World(llm=one, functions=one), 3)))
        sent.append(brain.bodies)
    assert said[0] == said[1]
    assert apart_from_order(sent[0]) == apart_from_order(sent[1])
    if any(len(read(body).order) > 1 for body in sent[1]):
        assert sent[0] != sent[1], "nothing was moved: this test shows nothing"


@pytest.mark.parametrize("name", CONTROLS)
async def test_a_bare_llm_fails_the_same_check(name, brain, open_ai_like) -> None:
    """The control of the order: four documents come sorted by chance once in 24 times."""
    counts = await counts_of(name, 6, brain, open_ai_like(api_base=brain.base_url), [])
    assert counts.not_canonical > 0


async def test_one_store_of_the_last_documents_fails_the_same_check(
    brain, llm, sights, monkeypatch
) -> None:
    """The control of the concurrency: documents found by being the last ones, not by content."""
    last: list[Any] = []
    file = CONTEXTS.file
    monkeypatch.setattr(
        CONTEXTS, "file", lambda found, chunks: (last.append(found), file(found, chunks))
    )
    monkeypatch.setattr(CONTEXTS, "find", lambda *_: last[-1] if last else None)
    monkeypatch.setattr(asking, "around", lambda: tuple(last[-1:]))
    name = "asynchronous streams interleaved in one task"
    counts = await counts_of(name, 20, brain, llm, sights)
    assert counts.crossed == 0
    assert counts.not_canonical > 10
    assert counts.others_visible > 10


@pytest.mark.parametrize(
    "name",
    [
        "compact, awaited",
        "compact, synchronous stream in threads",
        "stream begun in one thread, read in another",
        "structured answer",
        "context chat",
        "FunctionAgent with a retriever tool, streamed",
        "workflow with a synthesizer",
    ],
)
async def test_nothing_crosses_through_an_llm_of_our_own(
    name, brain, sorting_portal, sights
) -> None:
    target = OpenAITarget(model="fake", base_url=brain.base_url)
    llm = RagCacheLLM(cache=sorting_portal, target=target, tenant="acme", context_window=32_000)
    await check(name, 20, brain, llm, sights)
    sorting_portal.run(target.close())
