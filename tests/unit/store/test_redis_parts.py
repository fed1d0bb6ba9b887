"""The pure parts of the Redis store: names of keys, entries as bytes, errors, selections."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from ragcache.errors import MissingTenantError, StoreError, StoreUnavailableError
from ragcache.store.redis import entries, places, scripts
from ragcache.store.redis.errors import translated
from ragcache.store.redis.purging import selects
from ragcache.store.selection import Selection
from ragcache.types import Document, TenantId
from tests.store_samples import NOW, entry, request, scope

TEXT = st.text(st.characters(), min_size=1, max_size=40)


@given(TEXT, TEXT)
def test_no_tenants_prefix_begins_anothers(one, other):
    first, second = places.prefix(one), places.prefix(other)
    assert (first == second) == (one == other)
    assert len(first) == len(second)
    assert first.count("{") == first.count("}") == 1


def test_a_tenant_is_never_defaulted():
    with pytest.raises(MissingTenantError):
        places.prefix("")


def test_each_part_of_a_place_makes_another_place():
    made = scope(request("t"))
    changes = [
        {"tenant": TenantId("u")},
        {"group": "tenant"},
        {"namespace": "n2"},
        {"partition": "p"},
    ]
    found = {places.place(replace(made, **change), "E", 8) for change in [{}, *changes]}
    found |= {places.place(made, "F", 8), places.place(made, "E", 9)}
    assert len(found) == len(changes) + 3


@given(TEXT, TEXT, st.dictionaries(TEXT, st.one_of(st.none(), st.integers(), TEXT)))
def test_an_entry_comes_back_as_it_was(question, version, answer):
    asked = request("t", question=question, documents=(Document(text="d", source="s"),))
    made = entry(asked, version=version, answer=answer, signature=b"\x00\xff", vector=None)
    found = entries.unpacked(entries.packed(made).encode(), b"live", made.scope)
    assert found == made


@pytest.mark.parametrize("field", ["tenant", "group", "namespace", "partition"])
def test_an_entry_of_another_scope_is_none(field):
    made = entry(request("t"))
    body = entries.packed(made).encode()
    assert entries.unpacked(body, b"live", made.scope)
    assert entries.unpacked(body, b"live", replace(made.scope, **{field: "other"})) is None


@given(st.binary(max_size=200), st.binary(max_size=12))
def test_whatever_the_bytes_are_reading_them_raises_nothing(body, state):
    assert entries.unpacked(body, state, scope(request("t"))) is None


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


@given(st.sampled_from(sorted(json.loads(entries.packed(entry(request("t")))))), JSON)
def test_whatever_stands_in_a_field_reading_it_raises_nothing(field, value):
    made = entry(request("t"))
    fields = json.loads(entries.packed(made)) | {field: value}
    found = entries.unpacked(json.dumps(fields).encode(), b"live", made.scope)
    assert found is None or found.scope.tenant == "t"


def test_a_newer_schema_is_none():
    made = entry(request("t"))
    fields = json.loads(entries.packed(made)) | {"schema": entries.SCHEMA + 1}
    assert entries.unpacked(json.dumps(fields).encode(), b"live", made.scope) is None


LATER = [
    exceptions.ConnectionError("gone"),
    exceptions.TimeoutError("slow"),
    exceptions.ReadOnlyError("replica"),
    exceptions.OutOfMemoryError("full"),
    exceptions.BusyLoadingError("loading"),
    exceptions.ClusterDownError("down"),
    exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
    exceptions.ResponseError("MISCONF no disk"),
    exceptions.ResponseError("BUSY a script runs"),
    OSError("no route"),
    TimeoutError(),
]
NEVER = [
    exceptions.ResponseError("WRONGTYPE Operation against a key"),
    exceptions.NoPermissionError("no right"),
    exceptions.AuthenticationError("who are you"),
    exceptions.MovedError("1 127.0.0.1:1"),
]


@pytest.mark.parametrize("error", LATER + NEVER, ids=repr)
def test_an_error_says_whether_it_will_pass(error):
    with pytest.raises(StoreError) as raised, translated():
        raise error
    assert isinstance(raised.value, StoreUnavailableError) == (error in LATER)


def test_scripts_say_to_the_server_what_they_do():
    for name in ("find", "change", "purge", "put", "remember", "take"):
        text = scripts.script(name).text
        first = text.splitlines()[0]
        assert first.startswith("#!lua")
        assert ("allow-oom" in first) == (name not in ("put", "remember"))
        assert "no-writes" not in first, "a replica would run it"


@pytest.mark.parametrize(
    ("criterion", "other"),
    [
        ({"namespace": "default"}, {"namespace": "n"}),
        ({"model": "m"}, {"model": "x"}),
        ({"version": "v"}, {"version": "x"}),
        ({"embedder": "E"}, {"embedder": "x"}),
        ({"entry": "e1"}, {"entry": "x"}),
        ({"writer": "ann"}, {"writer": "x"}),
        ({"document": "s"}, {"document": "x"}),
        ({"older_than": NOW + timedelta(seconds=1)}, {"older_than": NOW}),
    ],
)
def test_a_selection_takes_what_it_names(criterion, other):
    asked = request("t", principal="ann", documents=(Document(text="d", source="s"),))
    made = entry(asked, id="e1", model="m", version="v")
    assert selects(Selection(tenant="t", **criterion), made)
    assert not selects(Selection(tenant="t", **other), made)
    both = {"namespace": "none"} | criterion if "namespace" not in criterion else {"model": "none"}
    assert not selects(Selection(tenant="t", **both), made), "every criterion must hold"
