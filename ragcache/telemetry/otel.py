"""OpenTelemetry: a span for each answer, one below it for each call, and the metrics.

Only the API is used: without an SDK that the application sets up, nothing is done. Spans are made
from events, with the times the events tell. What was asked and answered is no attribute unless
that was asked for.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from ..events import Admitted, Answered, Called, Degraded, Event, Judged, LaidOut, LookedUp
from ..types import Hit, Usage
from . import record, savings, semconv
from .savings import PriceOf
from .semconv import Metric

#: Answers whose last event has not come: beyond, the oldest span is ended.
_OPEN_MAX = 4_096
_Value = str | bool | int | float | Sequence[str]


class OpenTelemetryHook:
    """A hook that makes spans and metrics.

    Args:
        tracer_provider, meter_provider: The application's global ones by default.
        prices: Of models, for money.
        contents: Add messages to the spans.
        tenant_label: Add the tenant to the answer span.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        prices: PriceOf | None = None,
        contents: bool = False,
        tenant_label: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer("ragcache", tracer_provider=tracer_provider)
        self._meter = _Meter(meter_provider)
        self._prices = prices or savings.prices_of()
        self._contents = contents
        self._tenant_label = tenant_label
        self._open: OrderedDict[str, tuple[Span, dict[str, _Value]]] = OrderedDict()
        self._laid_out: OrderedDict[str, LaidOut] = OrderedDict()

    def __call__(self, event: Event) -> None:
        """Make of an event what there is to be made."""
        self._meter.count(event, self._prices)
        # Judgements and faults may come when the answer is long given: they begin no span.
        if isinstance(event, Judged | Degraded):
            return
        span, attributes = self._answer_span(event)
        attributes |= _told(event)
        if isinstance(event, LaidOut) and self._contents:
            self._laid_out[event.request_id] = event
        if isinstance(event, Called):
            self._call_span(event, span)
        if isinstance(event, Answered) and self._contents:
            said = [{"role": "assistant", "content": event.answer.text}]
            attributes[semconv.OUTPUT_MESSAGES] = json.dumps(said, ensure_ascii=False)
        if record.is_last(event):
            self._end(event, span, attributes)

    def _answer_span(self, event: Event) -> tuple[Span, dict[str, _Value]]:
        """Return the span of the request, begun with its first event."""
        known = self._open.get(event.request_id)
        if known is not None:
            return known
        began_ns = time.time_ns() - int(event.seconds * 1e9)
        span = self._tracer.start_span(
            semconv.ANSWER_SPAN, kind=SpanKind.INTERNAL, start_time=began_ns
        )
        begun = span, self._common(event)
        self._open[event.request_id] = begun
        if len(self._open) > _OPEN_MAX:
            _, (oldest, attributes) = self._open.popitem(last=False)
            oldest.set_attributes(attributes)
            oldest.end()
        return begun

    def _common(self, event: Event) -> dict[str, _Value]:
        attributes: dict[str, _Value] = {
            semconv.REQUEST_ID: event.request_id,
            semconv.NAMESPACE: event.scope.namespace,
        }
        if event.version:
            attributes[semconv.VERSION] = event.version
        if self._tenant_label:
            attributes[semconv.TENANT] = event.scope.tenant
        return attributes

    def _end(self, event: Event, span: Span, attributes: dict[str, _Value]) -> None:
        self._open.pop(event.request_id, None)
        self._laid_out.pop(event.request_id, None)
        span.set_attributes(attributes)
        if isinstance(event, Called):
            span.set_status(Status(StatusCode.ERROR, event.error))
        span.end()

    # --- the call ------------------------------------------------------------------------------

    def _call_span(self, event: Called, parent: Span) -> None:
        end_ns = time.time_ns()
        span = self._tracer.start_span(
            f"chat {event.model}",
            context=trace.set_span_in_context(parent),
            kind=SpanKind.CLIENT,
            start_time=end_ns - int(event.seconds * 1e9),
            attributes=_of_call(event),
        )
        laid = self._laid_out.get(event.request_id)
        if laid is not None:
            messages = [message.wire() for message in laid.layout.messages]
            span.set_attribute(
                semconv.INPUT_MESSAGES, json.dumps(messages, ensure_ascii=False, default=str)
            )
        if event.error:
            span.set_status(Status(StatusCode.ERROR, event.error))
        span.end(end_ns)


def _of_call(event: Called) -> dict[str, _Value]:
    usage = event.usage
    known: Mapping[str, _Value | None] = {
        semconv.OPERATION: "chat",
        semconv.PROVIDER: event.provider,
        semconv.REQUEST_MODEL: event.model,
        semconv.FINISH_REASONS: [event.finish_reason] if event.finish_reason else None,
        semconv.INPUT_TOKENS: usage.input_tokens,
        semconv.OUTPUT_TOKENS: usage.output_tokens,
        semconv.CACHE_READ_TOKENS: usage.cached_tokens,
        semconv.REASONING_TOKENS: usage.reasoning_tokens,
        semconv.TIME_TO_FIRST_CHUNK: event.ttft_s,
        semconv.PREDICTED_TOKENS: event.reuse.predicted_tokens,
        semconv.REUSE_CAUSE: event.reuse.cause or None,
        semconv.ERROR_TYPE: event.error or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _told(event: Event) -> dict[str, _Value]:
    """Return what the answer span learns from an event."""
    match event:
        case LookedUp():
            return _of_lookup(event)
        case LaidOut():
            return {semconv.BLOCKS: len(event.layout.blocks)}
        case Admitted():
            return _of_admission(event)
        case Answered():
            return _of_answer(event)
    return {}


def _of_admission(event: Admitted) -> dict[str, _Value]:
    told: dict[str, _Value] = {semconv.STORE_REASON: event.reason} if event.reason else {}
    return told if event.stored is None else told | {semconv.STORED: event.stored}


def _of_lookup(event: LookedUp) -> dict[str, _Value]:
    found = event.outcome
    told: dict[str, _Value] = {semconv.STATUS: record.status_of(event, None)}
    if isinstance(found, Hit):
        return told | {
            semconv.SIMILARITY_ATTRIBUTE: found.similarity,
            semconv.ENTRY: found.entry.id,
            semconv.CERTIFIED: found.certified,
        }
    told |= {semconv.FWD: found.fwd, semconv.REASON: found.reason}
    return told if found.nearest is None else told | {semconv.SIMILARITY_ATTRIBUTE: found.nearest}


def _of_answer(event: Answered) -> dict[str, _Value]:
    status = event.answer.status
    told: dict[str, _Value] = {
        semconv.STATUS: record.status_of(None, event.answer),
        semconv.COLLAPSED_ATTRIBUTE: status.collapsed,
    }
    if event.saved_usage is not None:
        told[semconv.SAVED_INPUT_TOKENS] = event.saved_usage.input_tokens or 0
        told[semconv.SAVED_OUTPUT_TOKENS] = event.saved_usage.output_tokens or 0
    return told


# --- metrics -----------------------------------------------------------------------------------


class _Meter:
    """The instruments: those of the conventions and our own."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = metrics.get_meter("ragcache", meter_provider=provider)
        self._made = {m.name: _instrument(meter, m) for m in _COUNTED}

    def count(self, event: Event, prices: PriceOf) -> None:
        """Count an event."""
        match event:
            case LookedUp() if not event.provider:
                self._add(semconv.REQUESTS, 1, status=record.status_of(event, None))
            case LookedUp():
                self._looked_up(event)
            case Called():
                self._called(event, prices)
            case Admitted():
                self._stage("admission", event)
            case LaidOut():
                self._stage("layout", event)
            case Answered():
                self._stage("answer", event)
                self._add(semconv.REQUESTS, 1, status=record.status_of(None, event.answer))
            case Judged():
                self._add(semconv.JUDGED, 1, agreed="yes" if event.agreed else "no", by=event.by)

    def _looked_up(self, event: LookedUp) -> None:
        self._stage("lookup", event)
        found = event.outcome
        nearest = found.similarity if isinstance(found, Hit) else found.nearest
        if nearest is not None:
            self._record(semconv.SIMILARITY, nearest, {})

    def _called(self, event: Called, prices: PriceOf) -> None:
        self._stage("target", event)
        where: dict[str, _Value] = {
            semconv.OPERATION: "chat",
            semconv.PROVIDER: event.provider,
            semconv.REQUEST_MODEL: event.model,
        }
        error = {semconv.ERROR_TYPE: event.error} if event.error else {}
        self._record(semconv.GEN_AI_DURATION, event.seconds, where | error)
        if event.error:
            return
        if event.ttft_s is not None:
            self._record(semconv.GEN_AI_FIRST_CHUNK, event.ttft_s, where)
        for kind, count in _input_and_output(event.usage):
            self._record(semconv.GEN_AI_TOKENS, count, where | {semconv.TOKEN_TYPE: kind})
        if event.usage.cached_tokens:
            self._add(semconv.TOKENS, event.usage.cached_tokens, kind="cached", model=event.model)
        money = savings.of_call(event.usage, prices(event.provider, event.model))
        if money.cost is not None and money.uncached is not None:
            self._add(semconv.COST, money.cost, kind="spent", model=event.model)
            self._add(semconv.COST, money.uncached, kind="uncached", model=event.model)

    def _stage(self, stage: str, event: Event) -> None:
        self._record(semconv.STAGE, event.seconds, {"stage": stage})

    def _add(self, metric: Metric, amount: float, **attributes: str) -> None:
        self._made[metric.name].add(amount, attributes)

    def _record(self, metric: Metric, value: float, attributes: Mapping[str, _Value]) -> None:
        self._made[metric.name].record(value, attributes)


_COUNTED = (
    semconv.REQUESTS,
    semconv.STAGE,
    semconv.TOKENS,
    semconv.COST,
    semconv.SIMILARITY,
    semconv.JUDGED,
    *semconv.GEN_AI_METRICS,
)


def _instrument(meter: metrics.Meter, metric: Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, unit=metric.unit, description=metric.help)
    return meter.create_histogram(
        metric.name,
        unit=metric.unit,
        description=metric.help,
        explicit_bucket_boundaries_advisory=list(metric.buckets),
    )


def _input_and_output(usage: Usage) -> Sequence[tuple[str, int]]:
    named = (("input", usage.input_tokens), ("output", usage.output_tokens))
    return [(kind, count) for kind, count in named if count is not None]
