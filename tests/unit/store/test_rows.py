"""Entries as rows and back, names and their limits, and when an answer must not be stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragcache.keys import raw_hash
from ragcache.protocols import Snapshot
from ragcache.store.rows import (
    document_names,
    lineage_names,
    raw_name,
    refusal,
    scope_values,
    storable,
    unstorable,
)
from ragcache.types import Document
from tests.store_samples import entry, lineage, request, scope

ANY_TEXT = st.text(st.characters(), max_size=60)


@given(ANY_TEXT)
def test_what_is_stored_is_always_storable(text):
    kept = storable(text)
    assert len(kept.encode("utf-8")) <= 1000
    assert "\0" not in kept
    assert storable(kept) == kept


@given(ANY_TEXT, ANY_TEXT)
def test_different_texts_stay_different(one, other):
    assert (storable(one) == storable(other)) == (one == other)


def test_long_texts_go_by_their_hash():
    assert storable("x" * 1000) == "x" * 1000
    assert storable("x" * 1001) == raw_name(raw_hash("x" * 1001))
    assert storable("\ud800").startswith("sha256:")


def test_documents_and_their_lineage_have_the_same_names():
    documents = (
        Document(text="one", source="s", id="i"),
        Document(text="two"),
        Document(text="three", source="long" * 400),
    )
    names = document_names(documents)
    assert names == lineage_names(lineage(documents))
    assert {"s", "i", raw_name(raw_hash("two"))} < set(names)
    assert len(names) == 6


@pytest.mark.parametrize(
    ("epoch", "numbers", "reason"),
    [
        (3, {"a": 1, "b": 0}, ""),
        (4, {"a": 1, "b": 0}, "epoch"),
        (3, {"a": 2, "b": 0}, "document_changed"),
        (3, {"a": 0, "b": 0}, "document_changed"),
        (3, {"a": 1, "b": 5}, "document_changed"),
        (3, {}, ""),
        (3, {"a": 1, "unasked": 9}, ""),
    ],
)
def test_an_answer_is_refused_if_anything_it_depends_on_has_moved(epoch, numbers, reason):
    snapshot = Snapshot(epoch=3, changes=(("a", 1), ("b", 0)))
    assert refusal(snapshot, epoch, numbers) == reason


def test_a_scope_becomes_equality_conditions():
    values = scope_values(scope(request("t", principal="p", access={"b", "a"})))
    assert values["tenant"] == "t"
    assert values["sharing"] == "principal:p"
    assert values["access"] == ["a", "b"]


def test_texts_that_a_column_cannot_hold_are_named():
    made = entry(request("t"))
    assert unstorable(made) == ""
    assert unstorable(replace(made, question="a\0b")) == "question"
    assert unstorable(replace(made, model="\udfff")) == "model"
