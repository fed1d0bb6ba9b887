"""The table of names: as it was, and as the conventions have it."""

from __future__ import annotations

import re

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from ragcache.telemetry import semconv

#: Newer than the installed constants, from the repository that took the conventions over.
NEWER = {
    "gen_ai.response.time_to_first_chunk",
    "gen_ai.client.operation.time_to_first_chunk",
}

SNAPSHOT = """
ragcache_requests_total counter status
ragcache_misses_total counter reason
ragcache_stage_seconds histogram stage
ragcache_ttft_seconds histogram status
ragcache_tokens_total counter kind,model
ragcache_cost_usd_total counter kind,model
ragcache_unpriced_total counter model
ragcache_admissions_total counter verdict,check
ragcache_lookup_similarity histogram
ragcache_judged_total counter agreed,by
ragcache_collapsed_total counter
ragcache_lost_reuse_total counter cause
ragcache_degraded_total counter part,reason
ragcache_target_errors_total counter error
ragcache_entries gauge state
ragcache_bad_hit_bound gauge
ragcache_hook_errors_total counter
"""


def test_names_and_labels_change_only_on_purpose():
    lines = [f"{m.prometheus} {m.kind} {','.join(m.labels)}".strip() for m in semconv.METRICS]
    assert lines == SNAPSHOT.strip().splitlines()


def test_names_of_generative_ai_are_those_of_the_installed_constants():
    def values(module):
        return {v for v in vars(module).values() if isinstance(v, str) and v.startswith("gen_ai.")}

    installed = values(gen_ai_attributes) | values(gen_ai_metrics)
    ours = {*semconv.GEN_AI_ATTRIBUTES, *(m.name for m in semconv.GEN_AI_METRICS)}
    assert ours - installed == NEWER - installed
    assert len(ours & installed) > 10


def test_what_the_answer_cache_does_is_never_named_as_the_providers_cache():
    ours = {*semconv.ANSWER_ATTRIBUTES, *(m.name for m in semconv.METRICS)}
    assert all(name.startswith("ragcache.") for name in ours)


def test_no_metric_has_the_tenant_as_a_label():
    assert not any("tenant" in m.labels for m in (*semconv.METRICS, *semconv.GEN_AI_METRICS))


def test_prometheus_names_are_well_formed_and_histograms_have_growing_buckets():
    for metric in semconv.METRICS:
        assert re.fullmatch(r"ragcache_[a-z_]+", metric.prometheus)
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert bool(metric.buckets) == (metric.kind == "histogram")
