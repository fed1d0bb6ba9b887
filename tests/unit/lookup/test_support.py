"""What an answer rests on is still in the documents retrieved now."""

from __future__ import annotations

import pytest

from ragcache.lookup import SUPPORT, read, support_of
from ragcache.lookup.reading import Reading
from ragcache.lookup.support import is_supported

DOCUMENTS = [
    "The demurrage fee is 80 per day at Port Halden since 1980.",
    'The rule says "free time ends on the fourth day" and no more.',
]


def support(answer: str) -> list[str]:
    return support_of(answer, DOCUMENTS)


def test_numbers_names_and_quotations_that_a_document_holds_are_taken_down() -> None:
    answer = 'The fee in Halden is 80 [2]. It says "free time ends on the fourth day".'
    assert support(answer) == ["halden", "80", "free time ends on the fourth day"]


def test_what_no_document_holds_says_nothing() -> None:
    assert support("In all that makes 240 for Quillon.") == []
    assert is_supported({SUPPORT: []}, ["anything"])
    assert is_supported(read("What?").as_json(), ["anything"])
    assert is_supported(None, [])


@pytest.mark.parametrize(
    ("documents", "holds"),
    [
        (DOCUMENTS, True),
        (["The DEMURRAGE fee is 80 per day at Port halden."], True),
        (["The demurrage fee is 90 per day at Port Halden since 1980."], False),
        (["The demurrage fee is 80 per day at Port Dunmore."], False),
        ([], False),
    ],
)
def test_each_of_them_must_still_be_there(documents: list[str], holds: bool) -> None:
    reading = {SUPPORT: support("The fee in Halden is 80.")}
    assert is_supported(reading, documents) is holds


def test_it_stands_beside_the_reading_and_is_no_part_of_it() -> None:
    reading = {**read("What is the fee?").as_json(), SUPPORT: ["80"]}
    assert Reading.from_json(reading) == read("What is the fee?")


@pytest.mark.parametrize("odd", [7, "80", {"a": 1}, [None], [["80"]]])
def test_an_odd_value_never_raises(odd: object) -> None:
    assert is_supported({SUPPORT: odd}, ["no number"]) in (True, False)
