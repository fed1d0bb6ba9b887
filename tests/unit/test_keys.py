"""Keys are injective, and every field that shapes an answer is part of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.errors import MissingTenantError, RequestError
from ragcache.keys import (
    _NOT_SHAPING,
    Identity,
    cache_salt,
    encode,
    fingerprint,
    keys_of,
    normal_question,
    scope_of,
)
from ragcache.store.locks import lock_number
from ragcache.types import Document, Formatted, Message, Request

IDENTITY = Identity(target="t", model="m")
BASE = Request(
    tenant="acme",
    question="What is the fee?",
    system="Answer in French",
    documents=(Document(text="The fee is 80.", source="tariff.pdf"),),
    params={"temperature": 0.0, "max_tokens": 16},
)

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def keys(request: Request) -> tuple[str, str]:
    scope = scope_of(request, IDENTITY)
    both = keys_of(request, scope)
    return both.exact, both.normal


def canonical(value: object) -> object:
    """What equality must mean to the encoding: type and value, tuples as lists."""
    match value:
        case dict():
            return ("map", frozenset((canonical(k), canonical(v)) for k, v in value.items()))
        case list():
            return ("list", tuple(canonical(v) for v in value))
        case float():
            return ("float", value.hex())
        case _:
            return (type(value).__name__, value)


@given(PLAIN, PLAIN)
def test_encoding_is_injective(a: object, b: object):
    assert (encode(a) == encode(b)) == (canonical(a) == canonical(b))


CHANGES = {
    "tenant": "other",
    "question": "What is the price?",
    "principal": "dana",
    "system": "Answer in German",
    "tools": ({"type": "function", "function": {"name": "f"}},),
    "documents": (Document(text="The fee is 81.", source="tariff.pdf"),),
    "history": (Message(role="user", content="Hello"),),
    "formatted": Formatted(messages=(Message(role="user", content="x"),)),
    "standalone": "What is the fee for tariff 4?",
    "model": "other",
    "params": {"temperature": 0.1, "max_tokens": 16},
    "scope": {"since": "2031-01-01"},
    "locale": "de",
    "access": frozenset({"hr"}),
    "sharing": "tenant",
    "namespace": "other",
    "version": "2",
}


def test_pairs_that_run_into_each_other_unframed_never_collide(data_dir: Path):
    pairs = json.loads((data_dir / "security/key_framing_pairs.json").read_text())["pairs"]
    assert len(pairs) >= 18
    for one, other in pairs:
        assert encode(one) != encode(other), (one, other)
        assert fingerprint(*one) != fingerprint(*other), (one, other)
        asked = [BASE.replace(params={"x": pair}) for pair in (one, other)]
        assert len(set(keys(asked[0]) + keys(asked[1]))) == 4, (one, other)
        if not all(isinstance(part, str) and part.strip() for part in (*one, *other)):
            continue
        named = [BASE.replace(tenant=pair[0], principal=pair[1]) for pair in (one, other)]
        assert not set(keys(named[0])) & set(keys(named[1])), (one, other)
        assert cache_salt(b"s" * 32, *one) != cache_salt(b"s" * 32, *other), (one, other)
        numbers = [lock_number(scope_of(request, IDENTITY), "key") for request in named]
        assert numbers[0] != numbers[1], (one, other)


@pytest.mark.parametrize("field", ["target", "model", "revision", "policy"])
def test_another_target_model_revision_or_policy_is_another_partition(field: str):
    other = dataclasses.replace(IDENTITY, **{field: "another"})
    assert scope_of(BASE, other).partition != scope_of(BASE, IDENTITY).partition


def test_every_field_is_either_listed_as_not_shaping_or_changes_the_key():
    for field in dataclasses.fields(Request):
        assert (field.name in CHANGES) != (field.name in _NOT_SHAPING), field.name
    for name, value in CHANGES.items():
        assert keys(BASE.replace(**{name: value}))[0] != keys(BASE)[0], name


def partition_of(question: str, picture: str) -> str:
    """Of a prompt whose documents, picture and question are three content parts."""
    content = (
        {"type": "text", "text": "The fee is 80."},
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "text", "text": f"Q: {question}"},
    )
    message = Message(role="user", content=content)
    formatted = Formatted(messages=(message,), part=0, blocks=("The fee is 80.",))
    return scope_of(BASE.replace(question=question, formatted=formatted), IDENTITY).partition


def test_another_wording_in_another_content_part_is_the_same_partition_another_picture_is_not():
    one = partition_of("What is the fee?", "data:,one")
    assert partition_of("How much is the fee?", "data:,one") == one
    assert partition_of("What is the fee?", "data:,two") != one


def test_controls_and_metadata_do_not_change_the_key():
    for changes in (
        {"metadata": {"user": "u"}},
        {"volatile": {"clock": "12:00"}},
        {"ttl_s": 5.0},
        {"params": {**BASE.params, "stream": True, "user": "u"}},
    ):
        assert keys(BASE.replace(**changes)) == keys(BASE)


def test_an_unknown_body_field_is_part_of_the_key():
    changed = BASE.replace(params={**BASE.params, "foo": 1})
    assert keys(changed)[0] != keys(BASE)[0]


def test_document_order_does_not_change_the_key_but_content_does():
    one, two = Document(text="a"), Document(text="b")
    assert keys(BASE.replace(documents=(one, two))) == keys(BASE.replace(documents=(two, one)))
    assert keys(BASE.replace(documents=(one,)))[0] != keys(BASE.replace(documents=(one, two)))[0]


def test_the_normal_key_folds_case_blanks_and_closing_punctuation():
    assert normal_question("  What IS\u00a0the  fee??") == normal_question("what is the fee")
    assert keys(BASE.replace(question="what is  the FEE"))[1] == keys(BASE)[1]
    assert keys(BASE.replace(question="what is  the FEE"))[0] != keys(BASE)[0]


def test_a_request_without_tenant_is_refused():
    for tenant in ("", "  ", None):
        with pytest.raises(MissingTenantError, match="tenant"):
            scope_of(BASE.replace(tenant=tenant), IDENTITY)


def test_a_value_without_canonical_form_is_refused_and_named():
    with pytest.raises(RequestError, match="object"):
        scope_of(BASE.replace(params={"x": object()}), IDENTITY)


def test_salts_have_the_one_accepted_shape_and_differ_by_group_and_secret():
    salts = {
        cache_salt(secret, *group)
        for secret in (b"one", b"two")
        for group in (("acme/eu@prod",), ("acme/eu@stage",), ("acme", "/eu@prod"), ("x" * 300,))
    }
    assert len(salts) == 8
    assert all(len(s) == 43 and s.isascii() and "=" not in s for s in salts)
    assert cache_salt(b"one", "acme") == cache_salt(b"one", "acme")
    with pytest.raises(MissingTenantError):
        cache_salt(b"one", "")
