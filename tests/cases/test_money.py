"""Cases of usage, cost and metrics: what is paid, what is saved, and what is only a hit."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from langchain_core.messages.ai import UsageMetadata
from llama_index.core.llms import CompletionResponse
from prometheus_client import CollectorRegistry

from langchain_ragcache.replies import usage_of
from llama_index_ragcache.replies import completion_of
from ragcache.events import Hooks, Judged
from ragcache.store import traffic
from ragcache.store.traffic import TrafficWriter
from ragcache.targets.usage import anthropic_usage, openai_usage
from ragcache.telemetry import figures, savings
from ragcache.telemetry.prometheus import PrometheusHook
from ragcache.telemetry.recorder import Recorder
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

PRICES = savings.prices_of(
    {
        "o": {"input": 2.0, "read": 0.5, "output": 8.0},
        "n": {"input": 3.0, "read": 0.3, "write": 3.75, "output": 15.0},
        "fake": {"input": 2.0, "read": 0.5, "output": 8.0},
    }
)
OPENAI = {
    "prompt_tokens": 6000,
    "completion_tokens": 250,
    "total_tokens": 6250,
    "prompt_tokens_details": {"cached_tokens": 4096},
}
ANTHROPIC = {
    "input_tokens": 120,
    "cache_read_input_tokens": 5000,
    "cache_creation_input_tokens": 880,
    "output_tokens": 250,
}
N_NORMALISED = UsageMetadata(
    input_tokens=6000,
    output_tokens=250,
    total_tokens=6250,
    input_token_details={"cache_read": 5000, "cache_creation": 880},
)


THROUGH_LLAMA_INDEX = CompletionResponse(text="", raw={"usage": ANTHROPIC})


@pytest.mark.parametrize(
    ("model", "usage", "cost", "uncached", "saved", "hit_rate"),
    [
        ("o", openai_usage(OPENAI), 0.007856, 0.014000, 0.006144, 0.682667),
        ("n", anthropic_usage(ANTHROPIC), 0.008910, 0.021750, 0.012840, 0.833333),
        ("n", completion_of(THROUGH_LLAMA_INDEX).usage, 0.008910, 0.021750, 0.012840, 0.833333),
        ("n", usage_of(N_NORMALISED), 0.008910, 0.021750, 0.012840, 0.833333),
    ],
)
def test_M01_cached_tokens_are_counted_once(model, usage, cost, uncached, saved, hit_rate):
    money = savings.of_call(usage, PRICES("", model))
    assert round(money.cost, 6) == cost
    assert round(money.uncached, 6) == uncached
    assert round(money.saved, 6) == saved
    assert usage.input_tokens == 6000
    assert usage.input_tokens + usage.output_tokens == 6250
    assert round(usage.cached_tokens / usage.input_tokens, 6) == hit_rate
    fresh = usage.computed_tokens - (usage.cache_write_tokens or 0)
    assert usage.cached_tokens + (usage.cache_write_tokens or 0) + fresh == usage.input_tokens
    assert min(usage.cached_tokens, fresh) >= 0


def test_M01_a_model_without_a_price_is_unknown_and_not_free():
    assert savings.of_call(openai_usage(OPENAI), PRICES("", "nobody's")) == savings.UNKNOWN
    assert savings.UNKNOWN.saved is None


DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


async def test_M03_a_hit_costs_nothing_and_a_bad_one_loses_its_saving(
    make, postgres, upstream, table, tenant, events
):
    """One call, a hit by call and one by stream, the last of them said to be bad."""
    usage = {"prompt_tokens": 900, "completion_tokens": 200, "total_tokens": 1100}
    upstream.answer(Reply(usage=usage | {"prompt_tokens_details": {"cached_tokens": 0}}))
    registry = CollectorRegistry()
    recorder = Recorder(TrafficWriter(postgres.app), prices=PRICES, every_s=60)
    hooks = Hooks(events.append, PrometheusHook(registry, prices=PRICES), recorder)
    pipeline = await make(hooks=hooks)
    table.place("What is the demurrage fee?", 1.0)
    table.place("What is the fee for demurrage?", 0.99)

    def ask(question: str) -> Request:
        return Request(tenant=tenant, question=question, documents=DOCUMENTS)

    first = await pipeline.answer(ask("What is the demurrage fee?"))
    called = await pipeline.answer(ask("What is the fee for demurrage?"))
    chunks = [c async for c in pipeline.stream(ask("What is the fee for demurrage?"))]
    streamed = chunks[-1].answer
    assert first.status.hit is None
    for hit in (called, streamed):
        assert hit.status.hit == "semantic"
        assert (hit.usage.input_tokens, hit.usage.output_tokens) == (0, 0)
        assert hit.ttft_s is not None
    assert len(upstream.bodies) == 1

    recorder.flush()
    before = summed(postgres, tenant)
    assert round(before.spent, 6) == 0.0034
    assert round(before.saved, 6) == 0.0068
    assert before.semantic_hit_rate == pytest.approx(2 / 3)
    assert (before.calls, before.input) == (1, 900)
    scope = next(e.scope for e in events if e.scope.tenant == tenant)
    for _ in range(2):  # said twice, lost once
        hooks.emit(
            Judged(
                request_id=streamed.request_id,
                scope=scope,
                entry=streamed.status.entry,
                similarity=0.99,
                agreed=False,
                by="feedback",
            )
        )
    recorder.close()
    after = summed(postgres, tenant)
    assert round(after.saved, 6) == 0.0034
    assert after.bad_hit_rate == 0.5
    assert after.semantic_hit_rate == pytest.approx(2 / 3)
    assert after.prefix_hit_rate == 0.0

    def metric(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert metric("ragcache_requests_total", status="hit_semantic") == 2
    assert metric("ragcache_tokens_total", kind="prompt", model="fake") == 900
    assert metric("ragcache_tokens_total", kind="cached", model="fake") is None
    assert metric("ragcache_tokens_total", kind="saved_input", model="fake") == 1800
    assert metric("ragcache_ttft_seconds_count", status="hit_semantic") == 2


def summed(postgres, tenant):
    since = datetime(2020, 1, 1, tzinfo=UTC)
    return figures.total(traffic.hours(postgres.ops, since=since, tenant=tenant))
