"""Readings: understood once, stored as JSON, read back as they were."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

from ragcache.lookup import Reading, likeness, read
from ragcache.types import Embedding


def embedding(text: str) -> Embedding:
    rng = np.random.default_rng(len(text))
    spans = tuple((at, at + 1) for at in range(len(text)))
    vector = rng.normal(size=8).astype(np.float32)
    return Embedding(
        text=text,
        vector=vector / np.linalg.norm(vector),
        spans=spans,
        token_vectors=rng.normal(size=(len(spans), 8)).astype(np.float32),
    )


@pytest.mark.parametrize(
    "text", ["How do I pay £5,000 by 3 May?", "花呗怎么提额？", "", "?!", "Ünïcode"]
)
def test_a_reading_survives_json(text: str) -> None:
    reading = read(text, embedding(text) if text else None)
    again = Reading.from_json(json.loads(json.dumps(reading.as_json())))
    assert again == reading
    assert again is not None
    if reading.vectors is not None:
        assert again.vectors is not None
        assert np.array_equal(again.vectors, reading.vectors)


@pytest.mark.parametrize("field", sorted(read("How do I pay?").as_json()))
@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [[1]], ["a", 1], True])
def test_a_damaged_reading_is_none_or_a_reading_and_never_an_exception(
    field: str, value: object
) -> None:
    damaged = copy.deepcopy(
        read("How do I pay the fee?", embedding("How do I pay the fee?")).as_json()
    )
    damaged[field] = value
    assert isinstance(Reading.from_json(damaged), Reading | None)


@pytest.mark.parametrize("value", [None, {}, {"schema": 99}, {"lc": 1, "type": "constructor"}])
def test_what_is_no_reading_is_none(value: dict[str, object] | None) -> None:
    assert Reading.from_json(value) is None


def test_likeness_of_the_packed_sentence_is_that_of_the_vectors() -> None:
    one, other = embedding("a first question"), embedding("another one")
    packed = likeness(read(one.text, one), read(other.text, other))
    assert packed == pytest.approx(float(one.vector @ other.vector), abs=0.02)
