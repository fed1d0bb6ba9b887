"""Events become counters and histograms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from ragcache.errors import ConfigError
from ragcache.events import Degraded, Hooks
from ragcache.telemetry import savings, semconv
from ragcache.telemetry.prometheus import PrometheusHook
from ragcache.types import Reject
from tests.unit.telemetry.samples import SPARED, judged, of_follower, of_hit, of_miss

PRICES = savings.prices_of({"m": {"input": 2.0, "read": 0.5, "output": 8.0}})


class Counted:
    def __init__(self, **options):
        self.registry = CollectorRegistry()
        self.hook = PrometheusHook(self.registry, prices=PRICES, **options)

    def __call__(self, events):
        for event in events:
            self.hook(event)
        return self

    def value(self, name, **labels):
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def counted():
    return Counted()


def test_a_miss_counts_its_tokens_money_and_lost_reuse(counted):
    counted(of_miss())
    assert counted.value("ragcache_requests_total", status="miss") == 1
    assert counted.value("ragcache_misses_total", reason="no_candidate") == 1
    tokens = {"prompt": 6000, "cached": 4096, "output": 250}
    for kind, count in tokens.items():
        assert counted.value("ragcache_tokens_total", kind=kind, model="m") == count
    assert counted.value("ragcache_lost_reuse_total", cause="evicted") == 904
    cost = {"spent": 0.007856, "uncached": 0.014}
    for kind, dollars in cost.items():
        assert counted.value("ragcache_cost_usd_total", kind=kind, model="m") == pytest.approx(
            dollars
        )
    assert counted.value("ragcache_admissions_total", verdict="admit", check="live") == 1
    for stage in ("lookup", "layout", "target", "admission", "answer"):
        assert counted.value("ragcache_stage_seconds_count", stage=stage) == 1


def test_an_answer_cache_hit_is_never_counted_as_the_providers_cached_tokens(counted):
    counted(of_hit())
    assert counted.value("ragcache_requests_total", status="hit_semantic") == 1
    assert counted.value("ragcache_tokens_total", kind="cached", model="m") is None
    assert counted.value("ragcache_tokens_total", kind="prompt", model="m") is None
    assert counted.value("ragcache_tokens_total", kind="saved_input", model="m") == 900
    assert counted.value("ragcache_cost_usd_total", kind="spared", model="m") == pytest.approx(
        0.0034
    )
    assert counted.value("ragcache_lookup_similarity_count") == 1


def test_a_follower_counts_as_collapsed_and_spares_the_leaders_call(counted):
    counted(of_follower())
    assert counted.value("ragcache_collapsed_total") == 1
    assert counted.value("ragcache_tokens_total", kind="saved_input", model="m") == 6000


def test_a_model_without_a_price_is_counted_as_unpriced_and_not_as_free():
    counted = Counted()
    counted.hook._prices = savings.prices_of()
    counted([*of_miss(), *of_hit()])
    assert counted.value("ragcache_unpriced_total", model="m") == 2
    assert counted.value("ragcache_cost_usd_total", kind="spent", model="m") is None


def test_judgements_faults_rejections_and_failed_calls_are_counted(counted):
    miss = of_miss()
    counted([judged(), judged(agreed=False, by="feedback", usage=SPARED, model="m")])
    counted([Degraded(request_id="r", scope=miss[0].scope, part="store", reason="timeout")])
    counted([replace(miss[3], verdict=Reject(check="ungrounded"), stored=False)])
    counted([replace(miss[2], error="TargetError")])
    assert counted.value("ragcache_judged_total", agreed="yes", by="verification") == 1
    assert counted.value("ragcache_judged_total", agreed="no", by="feedback") == 1
    assert counted.value("ragcache_cost_usd_total", kind="verification", model="m") > 0
    assert counted.value("ragcache_degraded_total", part="store", reason="timeout") == 1
    assert counted.value("ragcache_admissions_total", verdict="reject", check="ungrounded") == 1
    assert counted.value("ragcache_target_errors_total", error="TargetError") == 1
    assert counted.value("ragcache_tokens_total", kind="prompt", model="m") is None


def test_a_hit_found_bad_loses_what_it_had_spared_once(counted):
    counted(of_hit())
    counted([judged(agreed=False), judged(agreed=False, by="feedback")])
    lost = counted.value("ragcache_cost_usd_total", kind="lost", model="m")
    assert lost == pytest.approx(0.0034)


def test_the_bound_follows_what_was_verified_at_random(counted):
    assert counted.value("ragcache_bad_hit_bound") == 1.0
    counted([judged() for _ in range(620)])
    assert counted.value("ragcache_bad_hit_bound") < 0.005
    counted([judged(agreed=False)])
    assert counted.value("ragcache_bad_hit_bound") > 0.005


def test_no_tenant_and_no_content_is_exposed(counted):
    counted([*of_miss(tenant="acme-corp"), *of_hit(tenant="acme-corp")])
    exposed = generate_latest(counted.registry).decode()
    assert "acme-corp" not in exposed
    assert "secret" not in exposed


def test_the_tenant_is_a_label_where_it_was_asked_for():
    counted = Counted(tenant_label=True)(of_miss())
    assert counted.value("ragcache_requests_total", status="miss", tenant="acme") == 1


def test_ten_thousand_model_names_make_few_series(counted):
    called = of_miss()[2]
    for number in range(10_000):
        counted([replace(called, model=f"made-up-{number}")])
    series = [
        s for metric in counted.registry.collect() for s in metric.samples if "model" in s.labels
    ]
    assert len({s.labels["model"] for s in series}) <= 51
    assert counted.value("ragcache_tokens_total", kind="prompt", model="other") == 9950 * 6000


def test_caches_of_a_process_share_the_metrics_of_a_registry(counted):
    PrometheusHook(counted.registry, prices=PRICES)(of_miss()[-1])
    counted([of_miss()[-1]])
    assert counted.value("ragcache_requests_total", status="miss") == 2
    with pytest.raises(ConfigError, match="tenant_label"):
        PrometheusHook(counted.registry, tenant_label=True)


def test_failed_hooks_are_counted_and_the_request_is_not_hurt():
    def broken(event):
        raise RuntimeError("a hook of somebody's")

    hooks = Hooks(broken)
    registry = CollectorRegistry()
    hooks.add(PrometheusHook(registry, hooks=hooks))
    for event in of_miss():
        hooks.emit(event)
    assert registry.get_sample_value("ragcache_hook_errors_total") == 5


def test_every_metric_of_the_table_is_made():
    registry = CollectorRegistry()
    PrometheusHook(registry)
    made = {m.name for m in registry.collect()}
    assert {m.prometheus.removesuffix("_total") for m in semconv.METRICS} == made
