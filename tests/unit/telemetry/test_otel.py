"""Events become spans and metrics of OpenTelemetry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ragcache.telemetry import otel, semconv
from ragcache.telemetry.otel import OpenTelemetryHook
from tests.unit.telemetry.samples import SECRET, judged, of_hit, of_miss


class Traced:
    def __init__(self, **options):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.hook = OpenTelemetryHook(
            tracer_provider=self.provider,
            meter_provider=MeterProvider([self.reader]),
            **options,
        )

    def __call__(self, events):
        for event in events:
            self.hook(event)
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def metrics(self):
        data = self.reader.get_metrics_data()
        return {
            m.name: m
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for m in scope.metrics
        }


@pytest.fixture
def traced():
    return Traced()


def test_a_miss_is_an_answer_span_with_the_call_below_it(traced):
    spans = traced(of_miss())
    answer, call = spans["ragcache.answer"], spans["chat m"]
    assert call.parent.span_id == answer.context.span_id
    assert answer.kind is trace.SpanKind.INTERNAL
    assert call.kind is trace.SpanKind.CLIENT
    assert dict(call.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 6000,
        "gen_ai.usage.output_tokens": 250,
        "gen_ai.usage.cache_read.input_tokens": 4096,
        "gen_ai.response.time_to_first_chunk": 0.4,
        "ragcache.layout.predicted_reuse_tokens": 5000,
        "ragcache.reuse_cause": "evicted",
    }
    assert dict(answer.attributes) == {
        "ragcache.request_id": "r1",
        "ragcache.namespace": "default",
        "ragcache.version": "v1",
        "ragcache.status": "miss",
        "ragcache.fwd": "miss",
        "ragcache.reason": "no_candidate",
        "ragcache.similarity": 0.71,
        "ragcache.layout.blocks": 1,
        "ragcache.stored": True,
        "ragcache.collapsed": False,
    }


def test_a_hit_is_no_call_and_reports_no_cached_tokens_of_the_provider(traced):
    spans = traced(of_hit())
    assert list(spans) == ["ragcache.answer"]
    attributes = spans["ragcache.answer"].attributes
    assert attributes["ragcache.status"] == "hit_semantic"
    assert attributes["ragcache.saved.input_tokens"] == 900
    assert not any(name.startswith("gen_ai.") for name in attributes)


def test_spans_belong_to_the_callers_own_trace(traced):
    tracer = trace.get_tracer("app", tracer_provider=traced.provider)
    with tracer.start_as_current_span("the application"):
        spans = traced(of_miss())
    outer = {s.name: s for s in traced.exporter.get_finished_spans()}["the application"]
    assert spans["ragcache.answer"].parent.span_id == outer.context.span_id


def test_contents_and_tenant_are_attributes_only_where_they_were_asked_for(traced):
    def told(spans):
        return str([dict(s.attributes) for s in spans.values()])

    quiet = told(traced([*of_miss(), *of_hit()]))
    assert not any(word in quiet for word in (SECRET, "Said.", "acme", "tariff.pdf"))
    loud = Traced(contents=True, tenant_label=True)
    spans = loud(of_miss())
    assert SECRET in spans["chat m"].attributes[semconv.INPUT_MESSAGES]
    assert "Said." in spans["ragcache.answer"].attributes[semconv.OUTPUT_MESSAGES]
    assert spans["ragcache.answer"].attributes[semconv.TENANT] == "acme"


def test_a_failed_call_ends_both_spans_with_an_error(traced):
    looked, laid, called, *_ = of_miss()
    spans = traced([looked, laid, replace(called, error="TargetError")])
    for span in spans.values():
        assert span.status.status_code is trace.StatusCode.ERROR
    assert spans["chat m"].attributes["error.type"] == "TargetError"


def test_spans_that_never_end_are_bounded(traced, monkeypatch):
    monkeypatch.setattr(otel, "_OPEN_MAX", 10)
    for number in range(25):
        traced([replace(of_miss()[0], request_id=f"left-{number}")])
    assert len(traced.exporter.get_finished_spans()) == 15
    assert len(traced.hook._open) == 10


def test_a_late_judgement_begins_no_span(traced):
    assert traced([judged()]) == {}


def test_metrics_have_the_names_units_and_buckets_of_the_table(traced):
    traced([*of_miss(), *of_hit(), judged()])
    made = traced.metrics()
    table = {m.name: m for m in (*semconv.METRICS, *semconv.GEN_AI_METRICS)}
    assert {name for name in made if name not in table} == set()
    assert made["gen_ai.client.operation.duration"].unit == "s"
    for name, metric in made.items():
        if table[name].kind == "histogram":
            points = list(metric.data.data_points)
            assert tuple(points[0].explicit_bounds) == table[name].buckets
    tokens = {
        p.attributes["gen_ai.token.type"]: p.sum
        for p in made["gen_ai.client.token.usage"].data.data_points
    }
    assert tokens == {"input": 6000, "output": 250}


def test_without_an_sdk_nothing_is_done_and_nothing_fails():
    hook = OpenTelemetryHook()
    for event in [*of_miss(), *of_hit()]:
        hook(event)
    assert hook._open == {}
