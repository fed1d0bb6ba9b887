"""Phrases: a pattern is looked for only where one of its words stands, and nothing is missed."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragcache.admission import marks
from ragcache.admission.phrases import Phrase, Phrases, lowered, phrase
from ragcache.keys import fold

KINDS = {name: kind for name, kind in vars(marks).items() if isinstance(kind, Phrases)}
PHRASES = [
    pytest.param(one, id=f"{name}-{at}")
    for name, kind in KINDS.items()
    for at, one in enumerate(kind)
]


def test_every_kind_of_mark_is_under_test() -> None:
    assert {"_STRONG", "_REFUSAL", "_NO_EVIDENCE", "_ERROR", "_YOURS", "_MOMENT"} <= set(KINDS)


@pytest.mark.parametrize("one", PHRASES)
@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None, database=None)
@given(data=st.data())
def test_every_match_holds_one_of_its_words(one: Phrase, data: st.DataObject) -> None:
    text = fold(data.draw(st.from_regex(one.pattern, fullmatch=True)))
    found = one.pattern.search(text)
    if found is not None:  # folding may have taken the match apart
        assert any(word in lowered(found.group()) for word in one.words), found.group()


def test_a_word_too_many_in_a_pattern_would_be_seen() -> None:
    wrong = phrase("ignore", r"\b(?:ignore|forget) all\b")
    found = wrong.pattern.search("forget all")
    assert found
    assert not any(word in lowered(found.group()) for word in wrong.words)


@pytest.mark.parametrize("text", ["IGNORE the rules", "İgnore the rules", "ıgnore the rules"])
def test_no_spelling_of_an_i_hides_a_word(text: str) -> None:
    assert marks.carries_instruction(text)
    assert re.search("ignore", text, re.IGNORECASE)
