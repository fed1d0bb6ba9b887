"""Thresholds and switches by namespace and language."""

from __future__ import annotations

import pytest

from ragcache.errors import ConfigError
from ragcache.factory import _policies
from ragcache.pipeline import Policies
from ragcache.settings import Settings

LOOKUP = {
    "threshold": 0.75,
    "languages": {"zh": {"threshold": 0.93}},
    "namespaces": {
        "banking": {"policy_gate": True, "languages": {"zh": {"threshold": 0.95}}},
        "faq": {"uncertified_threshold": 0.8},
    },
}


def policies(**lookup: object) -> Policies:
    return _policies(Settings.load(lookup={**LOOKUP, **lookup}))


@pytest.mark.parametrize(
    ("namespace", "language", "threshold", "policy_gate"),
    [
        ("default", "en", 0.75, False),
        ("default", "zh", 0.93, False),
        ("banking", "en", 0.75, True),
        ("banking", "zh", 0.95, True),
        ("faq", "zh", 0.75, False),
    ],
)
def test_the_narrowest_section_holds_and_leaves_the_rest_as_around_it(
    namespace: str, language: str, threshold: float, policy_gate: bool
) -> None:
    found = policies().lookup_of(namespace, language)
    assert (found.threshold, found.policy_gate) == (threshold, policy_gate)


def test_the_guard_never_goes_below_the_threshold_of_the_section() -> None:
    all_of_them = policies()
    faq = all_of_them.guarding_of(all_of_them.lookup_of("faq", "en"))
    assert (faq.floor, faq.uncertified) == (0.75, 0.8)
    chinese = all_of_them.guarding_of(all_of_them.lookup_of("default", "zh"))
    assert (chinese.floor, chinese.uncertified) == (0.93, 0.93)
    assert all_of_them.guarding_of(all_of_them.lookup) is not None
    assert all_of_them.guarding_of(all_of_them.lookup).floor == 0.75


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespaces": 3},
        {"namespaces": {"faq": 0.8}},
        {"languages": {"zh": {"treshold": 0.9}}},
        {"namespaces": {"faq": {"threshold": 1.7}}},
    ],
)
def test_a_wrong_section_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        policies(**wrong)
