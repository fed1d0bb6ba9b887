from __future__ import annotations

import json

import pytest

from ragcache.gateway.bodies import ChatBody, read
from ragcache.gateway.faults import Fault

MESSAGES = [{"role": "user", "content": "What is the fee?"}]


def chat(**fields):
    return read(json.dumps({"messages": MESSAGES, **fields}).encode(), ChatBody)


def test_unknown_members_are_kept_as_they_came():
    whole = chat(future={"a": [1, 2.5, None]}, seed=2**60)[1]
    assert (whole["future"], whole["seed"]) == ({"a": [1, 2.5, None]}, 2**60)


def test_both_spellings_of_documents_are_one():
    nested = chat(ragcache={"documents": ["a"], "ttl_s": 5})
    dotted = chat(**{"ragcache": {"ttl_s": 5}, "ragcache.documents": ["a"]})
    assert nested[0].ragcache == dotted[0].ragcache
    assert "ragcache.documents" not in dotted[1]
    with pytest.raises(Fault, match="twice"):
        chat(**{"ragcache": {"documents": ["a"]}, "ragcache.documents": ["a"]})


@pytest.mark.parametrize(
    "fields",
    [
        {"ragcache": {"tenant": "globex"}},
        {"ragcache": {"principal": "ada"}},
        {"ragcache": {"access": ["hr"]}},
        {"ragcache": {"sharing": "public"}},
        {"ragcache": {"documents": [{"text": ""}]}},
        {"ragcache": {"expire_at": "2026-01-01T00:00:00"}},
        {"ragcache": {"max_age_s": 1e300}},
        {"ragcache": 1},
        {"timeout": 1},
        {"extra_body": {"cache_salt": "x"}},
        {"n": 0},
    ],
)
def test_what_is_not_a_callers_to_say_is_refused(fields):
    with pytest.raises(Fault) as refused:
        chat(**fields)
    assert refused.value.status == 400


def test_a_body_as_deep_as_the_limit_is_read_and_a_deeper_one_is_not():
    def nested(depth: int):
        value: list = []
        for _ in range(depth):
            value = [value]
        return value

    chat(deep=nested(60))
    with pytest.raises(Fault, match="deeper"):
        chat(deep=nested(70))
