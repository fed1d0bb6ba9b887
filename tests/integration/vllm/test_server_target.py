"""VLLMTarget against a real server: what is cached, for whom, and whether it was foreseen."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from ragcache.layout import LayoutPolicy
from ragcache.pipeline import Pipeline, Policies
from ragcache.targets.vllm import VLLMTarget
from ragcache.testing import Engine
from ragcache.types import Answer, Call, Message

from .worlds import ask_all, cached, delta, request, trace

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

#: What was retrieved stays where it is: these tests want the engine's view of an order.
AS_RETRIEVED = Policies(layout=LayoutPolicy(ordering="retrieved"))


@pytest.fixture
async def target(vllm_engine: Engine) -> AsyncIterator[VLLMTarget]:
    events = vllm_engine.options.kv_events
    made = VLLMTarget(
        model=vllm_engine.model,
        base_urls=[vllm_engine.base_url],
        kv_events=[events],
        kv_topic="kv",
        timeout_s=120,
    )
    await made.start()
    yield made
    await made.close()


def pipeline(target: VLLMTarget, **fields) -> Pipeline:
    """A pipeline without an answer cache, whose salts no other test has."""
    return Pipeline(target=target, salt_secret=uuid.uuid4().bytes, **fields)


async def test_cached_tokens_of_each_request_equal_the_engines_own_counters(vllm_engine, target):
    asking, found = pipeline(target), 0
    for one in trace("acme", 5, sets=2):
        before = vllm_engine.counters()
        answers = await ask_all(asking, [one])
        after = vllm_engine.counters()
        assert cached(answers) == delta(before, after, "vllm:prefix_cache_hits_total")
        prompt = answers[0].usage.input_tokens
        assert prompt == delta(before, after, "vllm:prefix_cache_queries_total")
        found += cached(answers)
    assert found > 0


async def test_P07_the_same_tenant_hits_and_another_does_not(target):
    asking = pipeline(target)
    one, again, other = await ask_all(
        asking, [request("acme", "a"), request("acme", "a"), request("globex", "a")]
    )
    assert one.usage.cached_tokens == 0
    assert again.usage.cached_tokens > 0
    assert other.usage.cached_tokens == 0
    # Control: the same tenant with another secret is another trust group.
    (foreign,) = await ask_all(pipeline(target), [request("acme", "a")])
    assert foreign.usage.cached_tokens == 0


async def test_a_prefix_is_reused_up_to_the_first_document_that_differs(target):
    asking = pipeline(target, policies=AS_RETRIEVED)
    first, swapped, begun_otherwise = await ask_all(
        asking,
        [
            request("acme", "a", "b", "c"),
            request("acme", "a", "c", "b"),
            request("acme", "b", "a", "c"),
        ],
    )
    assert first.usage.cached_tokens == 0
    # The head and the first document, in whole blocks.
    head = begun_otherwise.usage.cached_tokens
    assert head < 64
    assert head + 64 < swapped.usage.cached_tokens < first.usage.input_tokens / 2


async def test_one_character_at_the_start_leaves_nothing(target):
    asking = pipeline(target)
    asked = request("acme", "a", "b")
    cold, warm, changed = await ask_all(
        asking, [asked, asked, asked.replace(system="!" + asked.system)]
    )
    assert warm.usage.cached_tokens == (warm.usage.input_tokens - 1) // 32 * 32 > 0
    assert cold.usage.cached_tokens == changed.usage.cached_tokens == 0


async def check_predictions(target: VLLMTarget, count: int) -> None:
    answers = await ask_all(pipeline(target), trace("acme", count))
    pairs = [(a.reuse.predicted_tokens, a.reuse.served_tokens) for a in answers]
    right = sum(predicted == served for predicted, served in pairs)
    print(f"predicted equals served: {right} of {count}")
    assert right >= 0.95 * count, pairs
    assert sum(served for _, served in pairs) > 0
    assert target.mirrors[0].orphans == 0


async def test_what_is_served_was_predicted(target):
    await check_predictions(target, 12)


@pytest.mark.prove
async def test_what_is_served_was_predicted_in_sixty_requests(target):
    await check_predictions(target, 60)


async def test_the_engine_tells_its_block_size_and_prompts_are_tokenized_as_it_does(target):
    state = await target.refresh(target.replicas[0])
    assert state.block_size == target.block_size == 32
    assert state.kv_tokens > 1000
    assert state.prefix_caching is True
    call = Call(model=target.model, messages=(Message(role="user", content="Who holds paper?"),))
    completion = await target.complete(replace(call, params={"max_tokens": 1}))
    assert len(await target.tokenize(call)) == completion.usage.input_tokens


async def test_L06_what_an_earlier_turn_sent_is_found_again_by_the_next(target, make, tenant):
    asking = await make(target=target, salt_secret=uuid.uuid4().bytes)
    # One word, so that it ends by itself: only such a turn is continued.
    params = {"max_tokens": 48, "temperature": 0, "stop": [" ", "\n"]}
    history: tuple[Message, ...] = ()
    turns: list[Answer] = []
    for question, names in (("Who holds paper?", "ab"), ("And boxes?", "bc"), ("Thanks?", "")):
        asked = request(tenant, *names, question=question)
        asked = asked.replace(history=history, params=params, no_store=False)
        turns.append(await asking.answer(asked))
        assert turns[-1].completion.finish_reason == "stop"
        history += (
            Message(role="user", content=question),
            Message(role="assistant", content=turns[-1].text),
        )
        await asking._parts.settled()
    one, two, three = (turn.usage for turn in turns)
    assert one.cached_tokens == 0
    # All that the turn before sent, in whole blocks; its last tokens open the answer.
    assert two.cached_tokens >= one.input_tokens // 32 * 32 - 32 > 0
    assert three.cached_tokens >= two.input_tokens // 32 * 32 - 32
    # Only what is new was computed: document c and the question, then the last question alone.
    assert three.input_tokens - three.cached_tokens < 160
