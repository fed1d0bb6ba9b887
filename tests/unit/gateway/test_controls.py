from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ragcache.gateway.controls import controls_of, early_status, headers_of
from ragcache.types import CacheStatus, Miss

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "controls"),
    [
        (None, {}),
        ("", {}),
        ("no-store", {"no_store": True}),
        ("No-Cache", {"no_cache": True}),
        ("only-if-cached", {"only_if_cached": True}),
        ("max-age=60", {"max_age_s": 60.0}),
        ('max-age="60"', {"max_age_s": 60.0}),
        ("max-age=0, no-store", {"max_age_s": 0.0, "no_store": True}),
        ("max-age=-1", {"max_age_s": 0.0}),
        ("max-age=soon", {"max_age_s": 0.0}),
        ("max-age=" + "9" * 400, {"max_age_s": float(2**28)}),
        ("max-age=\u0663", {"max_age_s": 0.0}),
        ("min-fresh=5, max-stale, no-transform", {}),
        ("no-storefront", {}),
    ],
)
def test_cache_control_is_read_as_rfc_9111_says(header, controls):
    assert controls_of(header) == controls


def test_headers_never_hold_a_similarity():
    status = CacheStatus(hit="semantic", ttl_s=9.9, similarity=0.987654, age_s=3.7)
    told = headers_of(status, "r1")
    assert told == {
        "Cache-Status": "ragcache; hit; ttl=9; detail=semantic",
        "X-Request-Id": "r1",
        "Age": "3",
    }


def test_a_stream_says_at_its_start_what_is_known_then():
    missed = early_status(Miss(reason="no_candidate", nearest=0.5), now=NOW)
    assert str(missed) == "ragcache; fwd=miss; detail=no_candidate"
    assert str(early_status(None, now=NOW)) == "ragcache; fwd=bypass"
