"""What telemetry costs of the middleware's own time: everything on, against everything off.

The target answers at once, so that a request's time is the middleware's own. The same requests
go through both in turn, in one run; the recorder's thread and the span processor's count too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

from ragcache.events import Event, Hooks
from ragcache.store.traffic import TrafficWriter
from ragcache.telemetry import savings
from ragcache.telemetry.otel import OpenTelemetryHook
from ragcache.telemetry.prometheus import PrometheusHook
from ragcache.telemetry.recorder import Recorder
from ragcache.types import Completion, Document, Request, Usage

ROUNDS = 40
DOCUMENTS = tuple(
    Document(text=f"Rule {n}. " + "The fee is due for each day. " * 20, source=f"{n}.md")
    for n in range(8)
)


class AtOnce:
    """A target that answers at once."""

    provider = "openai"
    name = "at-once"
    model = "gpt-4o-mini"

    async def complete(self, call):
        usage = Usage(input_tokens=2000, cached_tokens=1024, output_tokens=20)
        return Completion(text="It is due.", finish_reason="stop", usage=usage, model=self.model)


class Nowhere(SpanExporter):
    """Takes spans as a collector would, without the network."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


class Timed(Hooks):
    """Hooks that know how long the requests waited for them."""

    seconds = 0.0

    def emit(self, event: Event) -> None:
        begun = time.perf_counter()
        super().emit(event)
        self.seconds += time.perf_counter() - begun


def asked(tenant: str, round_: int) -> list[Request]:
    """A miss, the same again (an exact hit), other words (a semantic hit)."""
    told = {"tenant": tenant, "documents": DOCUMENTS, "system": "Answer from the documents."}
    first = f"What is the fee for rule {round_}?"
    other = f"What's the fee for rule {round_}?"
    return [Request(question=q, **told) for q in (first, first, other)]


async def test_telemetry_costs_at_most_5_percent_of_the_middlewares_own_time(
    make, postgres, table, tenant
):
    prices = savings.prices_of()
    reader = InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    recorder = Recorder(TrafficWriter(postgres.app), prices=prices)
    hooks = Timed(
        PrometheusHook(CollectorRegistry(), prices=prices),
        OpenTelemetryHook(
            tracer_provider=provider, meter_provider=MeterProvider([reader]), prices=prices
        ),
        recorder,
    )
    for round_ in range(ROUNDS + 5):
        group = round_ % 8
        table.place(f"What is the fee for rule {round_}?", 1.0, group=group)
        table.place(f"What's the fee for rule {round_}?", 0.99, group=group)
    ways = {
        "off": await make(hooks=Hooks(), target=AtOnce()),
        "on": await make(hooks=hooks, target=AtOnce()),
    }
    spent = {name: [] for name in ways}
    cpu = {name: [] for name in ways}
    for round_ in range(ROUNDS + 5):
        for name in sorted(ways, reverse=bool(round_ % 2)):
            begun, begun_cpu = time.perf_counter(), time.process_time()
            for request in asked(f"{tenant}-{name}", round_):
                await ways[name].answer(request)
            spent[name].append(time.perf_counter() - begun)
            cpu[name].append(time.process_time() - begun_cpu)
        if round_ == 4:
            hooks.seconds = 0.0
    recorder.close()
    provider.shutdown()
    kept = {name: times[5:] for name, times in spent.items()}
    waited = hooks.seconds / sum(kept["on"])
    beside = statistics.median(on / off for on, off in zip(kept["on"], kept["off"], strict=True))
    processor = statistics.median(
        on / off for on, off in zip(cpu["on"][5:], cpu["off"][5:], strict=True)
    )
    print(
        f"\nrequests waited {waited:.1%} of their own time for telemetry"
        f"\ntime on/off {beside:.3f}, processor time on/off {processor:.3f}"
        f"\nown time of a request {sum(kept['off']) / len(kept['off']) / 3 * 1000:.2f} ms"
    )
    assert hooks.errors == 0
    assert waited <= 0.05
