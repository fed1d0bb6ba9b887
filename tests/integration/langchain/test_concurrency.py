"""No request's documents reach another, whatever the style, and each goes out in one order."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator
from contextvars import Context
from typing import Any

import pytest

from langchain_ragcache import asking, wrap
from langchain_ragcache.run_tree import RUNS, Retrieval
from ragcache.pipeline import Pipeline
from ragcache.portal import Portal
from tests.doubles.brain import Brain, think
from tests.doubles.upstream import Reply, serving
from tests.fixtures_langchain import Chats
from tests.integration.langchain import styles
from tests.integration.langchain.styles import (
    GROUPS,
    PER_GROUP,
    QUESTION_FIRST,
    SEES_OTHERS,
    STYLES,
    Parts,
)


@pytest.fixture(scope="module")
def one_portal() -> Iterator[Portal]:
    """Layout alone: nothing is stored, so every request reaches the provider."""
    with Portal(Pipeline) as portal:
        yield portal


@pytest.fixture(scope="module")
def one_brain() -> Iterator[Brain]:
    with serving(Brain()) as running:
        yield running


class Seen:
    """What the bodies of a run show."""

    def __init__(self, bodies: list[dict[str, Any]]) -> None:
        self.calls = 0
        self.crossed = 0
        self.question_first = 0
        orders: dict[int, set[tuple[int, ...]]] = {}
        for body in bodies:
            text = "\n".join(str(m["content"]) for m in body["messages"])
            places = self._places(text)
            if not places:
                continue
            self.calls += 1
            asked = text.index("Request ")
            group = styles.group_of(int(text[asked:].split()[1].rstrip(":")))
            self.crossed += any(g != group for _, g, _ in places)
            self.question_first += asked < places[-1][0]
            orders.setdefault(group, set()).add(tuple(k for _, _, k in places))
        self.orders = orders

    @staticmethod
    def _places(text: str) -> list[tuple[int, int, int]]:
        found = []
        for group in range(GROUPS):
            for k, document in enumerate(styles.documents(group)):
                at = text.find(document.page_content)
                if at >= 0:
                    found.append((at, group, k))
        return sorted(found)

    @property
    def not_canonical(self) -> int:
        """Groups whose documents went out in more than one order."""
        return sum(len(orders) > 1 for orders in self.orders.values())


@pytest.fixture
def others_seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many documents of other groups each model call could see."""
    counts: list[int] = []
    locate = asking.locate

    def recorded(messages, documents):
        text = "".join(m.text() for m in messages)
        counts.append(sum(d.text not in text for d in documents))
        return locate(messages, documents)

    monkeypatch.setattr(asking, "locate", recorded)
    return counts


def scripted(body: dict[str, Any]) -> Reply:
    reply = think(body)
    if reply.tool_calls:
        last = [m for m in body["messages"] if m["role"] == "user"][-1]["content"]
        reply.tool_calls[0]["function"]["arguments"] = json.dumps({"query": last})
    reply.delay_s = 0.02
    return reply


async def run(style: str, count: int, brain: Brain, portal: Portal) -> Seen:
    brain.bodies.clear()
    brain.script = scripted
    chats = Chats(brain.base_url)
    llm = wrap(chats(), portal, tenant=f"{style}-{count}")
    try:
        asked = STYLES[style](Parts(llm=llm), [styles.question(n) for n in range(count)])
        # In a context of its own, as a server has: nothing retrieved before is seen.
        await asyncio.create_task(asked, context=Context())
    finally:
        await chats.close()
    return Seen(brain.bodies)


async def check(style: str, count: int, brain: Brain, portal: Portal, others: list[int]) -> None:
    seen = await run(style, count, brain, portal)
    assert seen.calls >= count
    assert seen.crossed == 0
    assert seen.not_canonical == 0
    assert all(len(order) == PER_GROUP for orders in seen.orders.values() for order in orders)
    assert seen.question_first == (seen.calls if style in QUESTION_FIRST else 0)
    assert (sum(others) > 0) == (style in SEES_OTHERS)


@pytest.mark.parametrize("style", STYLES)
async def test_twenty_at_once(style, one_brain, one_portal, others_seen) -> None:
    await check(style, 20, one_brain, one_portal, others_seen)


@pytest.mark.prove
@pytest.mark.parametrize("style", STYLES)
async def test_two_hundred_at_once(style, one_brain, one_portal, others_seen) -> None:
    await check(style, 200, one_brain, one_portal, others_seen)


async def test_one_global_list_of_documents_fails(one_brain, one_portal, monkeypatch) -> None:
    """The negative control: what the run tree is for. Nothing crosses even so, since only text
    that is in the prompt is moved."""
    last: list[Retrieval] = []

    def remembered(run_id, documents, *, _file=RUNS.retrieved):
        last[:] = [Retrieval(query="", documents=tuple(documents))]
        _file(run_id, documents)

    monkeypatch.setattr(RUNS, "retrieved", remembered)
    monkeypatch.setattr(RUNS, "find", lambda _: tuple(last))
    seen = await run("ainvoke", 20, one_brain, one_portal)
    assert seen.not_canonical > 0
    assert seen.crossed == 0


async def test_runs_are_forgotten_when_they_end(one_brain, one_portal) -> None:
    before = len(RUNS)
    for style in ("ainvoke", "abandoned_streams", "cancelled_calls"):
        await run(style, 8, one_brain, one_portal)
    for _ in range(100):  # generators that nobody reads are closed when they are collected
        gc.collect()
        if len(RUNS) <= before:
            break
        await asyncio.sleep(0.1)
    assert len(RUNS) <= before
