"""Prometheus: events become counters and histograms of a registry.

Labels have few values. A tenant is a label only where it was asked for, because tenants are many;
model names come from requests, so that beyond a bound they are all called "other".
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from ..errors import ConfigError
from ..events import (
    Admitted,
    Answered,
    Called,
    Degraded,
    Event,
    Hooks,
    Judged,
    LaidOut,
    LookedUp,
)
from ..lookup.bounds import anytime_upper
from ..types import UNKNOWN_USAGE, Admit, Hit, Miss, Usage
from . import record, savings, semconv
from .savings import Money, PriceOf
from .semconv import Metric

_VALUES_MAX = 50
_OTHER = "other"
#: Hits whose saving is taken back when they are found bad.
_SAVED_MAX = 4_096

_made: WeakKeyDictionary[CollectorRegistry, tuple[bool, dict[str, Any]]] = WeakKeyDictionary()
_making = threading.Lock()


class PrometheusHook:
    """A hook that counts in a registry. Several caches of a process share its metrics.

    Args:
        registry: Where the metrics are; the process's own by default.
        prices: Of models, for money.
        tenant_label: Add the tenant to requests, tokens and cost: for few tenants only.
        hooks: Whose failed hooks are counted.

    Raises:
        ConfigError: Another cache made the registry's metrics with other labels.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        prices: PriceOf | None = None,
        tenant_label: bool = False,
        hooks: Hooks | None = None,
    ) -> None:
        self._hooks = hooks
        self._hook_errors = hooks.errors if hooks is not None else 0
        self._verified = self._wrong = 0
        self._saved: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self._prices = prices or savings.prices_of()
        self._tenant_label = tenant_label
        self._metrics = _metrics_of(registry, tenant_label)
        self._metrics[semconv.BAD_HIT_BOUND.name].set(1.0)
        self._bounded = _Bounded()
        self._child = lru_cache(maxsize=4_096)(self._labelled)
        self._take: Mapping[type[Event], Callable[[Any], None]] = {
            LookedUp: self._looked_up,
            LaidOut: self._laid_out,
            Called: self._called,
            Admitted: self._admitted,
            Answered: self._answered,
            Degraded: self._degraded,
            Judged: self._judged,
        }

    def __call__(self, event: Event) -> None:
        """Count an event."""
        self._take[type(event)](event)

    def entries(self, by_state: Mapping[str, int]) -> None:
        """Show how many answers are stored in each state, as an operator's look has found."""
        for state, count in by_state.items():
            self._child(semconv.ENTRIES, state).set(count)

    # --- one method for each event -------------------------------------------------------------

    def _looked_up(self, event: LookedUp) -> None:
        self._seconds("lookup", event.seconds - event.embed_seconds)
        if event.embed_seconds:
            self._seconds("embed", event.embed_seconds)
        nearest = _nearest(event.outcome)
        if nearest is not None:
            self._child(semconv.SIMILARITY).observe(nearest)
        if not event.provider:  # those who call the model themselves: the lookup is all
            self._status(event, record.status_of(event, None))
        if isinstance(event.outcome, Miss):
            self._add(semconv.MISSES, 1, self._bounded("reason", event.outcome.reason))

    def _laid_out(self, event: LaidOut) -> None:
        self._seconds("layout", event.seconds)
        predicted = event.layout.predicted_tokens
        if predicted:
            self._tokens(event, "predicted_reuse", "", predicted)

    def _called(self, event: Called) -> None:
        self._seconds("target", event.seconds)
        if event.error:
            self._add(semconv.TARGET_ERRORS, 1, self._bounded("error", event.error))
            return
        model, usage, reuse = event.model, event.usage, event.reuse
        for kind, count in _counts(usage):
            self._tokens(event, kind, model, count)
        self._money(event, model, savings.of_call(usage, self._prices(event.provider, model)))
        if reuse.predicted_tokens is not None and reuse.served_tokens is not None:
            lost = reuse.predicted_tokens - reuse.served_tokens
            if lost > 0:
                cause = self._bounded("cause", reuse.cause or "unknown")
                self._add(semconv.LOST_REUSE, lost, cause)

    def _admitted(self, event: Admitted) -> None:
        self._seconds("admission", event.seconds)
        verdict = event.verdict
        if isinstance(verdict, Admit):
            self._add(semconv.ADMISSIONS, 1, "admit", verdict.state)
        else:
            self._add(semconv.ADMISSIONS, 1, "reject", self._bounded("check", verdict.check))

    def _answered(self, event: Answered) -> None:
        self._seconds("answer", event.seconds)
        answer = event.answer
        status = record.status_of(None, answer)
        self._status(event, status)
        if answer.ttft_s is not None:
            self._child(semconv.TTFT, status).observe(answer.ttft_s)
        if answer.status.collapsed:
            self._add(semconv.COLLAPSED, 1)
        completion = answer.completion
        spared = event.saved_usage
        if spared is None and answer.status.collapsed and completion is not None:
            spared = completion.usage
        self._failed_hooks()
        if spared is not None:
            self._spared(event, completion.model if completion is not None else "", spared)

    def _failed_hooks(self) -> None:
        if self._hooks is not None and self._hooks.errors != self._hook_errors:
            self._add(semconv.HOOK_ERRORS, self._hooks.errors - self._hook_errors)
            self._hook_errors = self._hooks.errors

    def _spared(self, event: Answered, model: str, usage: Usage) -> None:
        self._tokens(event, "saved_input", model, usage.input_tokens or 0)
        self._tokens(event, "saved_output", model, usage.output_tokens or 0)
        money = savings.of_hit(usage, self._prices(event.provider, model))
        if money.saved is None:
            self._add(semconv.UNPRICED, 1, self._bounded("model", model))
            return
        self._cost(event, "spared", model, money.saved)
        self._saved[event.request_id] = model, money.saved
        if len(self._saved) > _SAVED_MAX:
            self._saved.popitem(last=False)

    def _degraded(self, event: Degraded) -> None:
        self._add(semconv.DEGRADED, 1, event.part, self._bounded("reason", event.reason))

    def _judged(self, event: Judged) -> None:
        agreed = "yes" if event.agreed else "no"
        self._add(semconv.JUDGED, 1, agreed, self._bounded("by", event.by))
        if event.by == "verification":
            self._verified, self._wrong = self._verified + 1, self._wrong + (not event.agreed)
            bound = anytime_upper(self._wrong, self._verified)
            self._metrics[semconv.BAD_HIT_BOUND.name].set(bound)
        served = event.by != "judge"
        lost = self._saved.pop(event.request_id, None) if served and not event.agreed else None
        if lost is not None:
            self._cost(event, "lost", *lost)
        if event.usage != UNKNOWN_USAGE:
            price = self._prices(event.provider, event.model)
            money = savings.of_call(event.usage, price)
            if money.cost is not None:
                self._cost(event, "verification", event.model, money.cost)

    # --- counting ------------------------------------------------------------------------------

    def _status(self, event: Event, status: str) -> None:
        self._add(semconv.REQUESTS, 1, status, *self._tenant(event))

    def _seconds(self, stage: str, seconds: float) -> None:
        self._child(semconv.STAGE, stage).observe(seconds)

    def _tokens(self, event: Event, kind: str, model: str, count: int) -> None:
        if count:
            known = self._bounded("model", model)
            self._add(semconv.TOKENS, count, kind, known, *self._tenant(event))

    def _money(self, event: Event, model: str, money: Money) -> None:
        if money.cost is None or money.uncached is None:
            self._add(semconv.UNPRICED, 1, self._bounded("model", model))
            return
        self._cost(event, "spent", model, money.cost)
        self._cost(event, "uncached", model, money.uncached)

    def _cost(self, event: Event, kind: str, model: str, dollars: float) -> None:
        known = self._bounded("model", model)
        self._add(semconv.COST, max(0.0, dollars), kind, known, *self._tenant(event))

    def _tenant(self, event: Event) -> Sequence[str]:
        return (event.scope.tenant,) if self._tenant_label else ()

    def _add(self, metric: Metric, amount: float, *labels: str) -> None:
        self._child(metric, *labels).inc(amount)

    def _labelled(self, metric: Metric, *labels: str) -> Any:
        made = self._metrics[metric.name]
        return made.labels(*labels) if labels else made


class _Bounded:
    """Lets the first so many values of a label pass; the others are called "other"."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}

    def __call__(self, label: str, value: str) -> str:
        seen = self._seen.setdefault(label, set())
        if value in seen:
            return value
        if len(seen) >= _VALUES_MAX:
            return _OTHER
        seen.add(value)
        return value


def _nearest(outcome: Hit | Miss) -> float | None:
    return outcome.similarity if isinstance(outcome, Hit) else outcome.nearest


def _counts(usage: Usage) -> Iterable[tuple[str, int]]:
    named = (
        ("prompt", usage.input_tokens),
        ("cached", usage.cached_tokens),
        ("written", usage.cache_write_tokens),
        ("output", usage.output_tokens),
    )
    return ((kind, count) for kind, count in named if count)


def _metrics_of(registry: CollectorRegistry, tenant_label: bool) -> dict[str, Any]:  # noqa: FBT001 -- one private call
    with _making:
        if registry not in _made:
            made = {m.name: _make(m, registry, tenant_label) for m in semconv.METRICS}
            _made[registry] = tenant_label, made
        labelled, metrics = _made[registry]
    if labelled != tenant_label:
        raise ConfigError(
            "two caches of this process share Prometheus metrics, and only one of them has the "
            "tenant as a label: give both the same telemetry.tenant_label, or their own registry"
        )
    return metrics


def _make(metric: Metric, registry: CollectorRegistry, tenant_label: bool) -> Any:  # noqa: FBT001 -- one private call
    tenant = ("tenant",) if tenant_label and metric.name in _BY_TENANT else ()
    labels = (*metric.labels, *tenant)
    name = metric.prometheus
    if metric.kind == "counter":
        return Counter(name, metric.help, labels, registry=registry)
    if metric.kind == "gauge":
        return Gauge(name, metric.help, labels, registry=registry)
    return Histogram(name, metric.help, labels, registry=registry, buckets=metric.buckets)


_BY_TENANT = {semconv.REQUESTS.name, semconv.TOKENS.name, semconv.COST.name}
