"""What a terminal is shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ragcache.cli.console import shown, table
from ragcache.cli.options import moment, span

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
        (123456.7, "123,457"),
        (NOW, "2026-05-01 12:00:00+00:00"),
        ("a\x1b[31mb\x07\x9bc\x7f", "a\\x1b[31mb\\x07\\x9bc\\x7f"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_a_value_is_shown_without_what_would_steer_a_terminal(value, text):
    assert shown(value) == text


def test_numbers_stand_to_the_right_and_texts_to_the_left():
    made = table("t", ("name", "count"), [("a", 1), ("b", None)])
    assert [c.justify for c in made.columns] == ["left", "right"]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("2w", 1209600)])
def test_spans_are_read(text, seconds):
    assert span(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "soon", "5", "-1d", "5 days ago"])
def test_what_is_no_span_is_refused_with_the_forms_that_are(text):
    with pytest.raises(Exception, match="30d"):
        span(text)
    with pytest.raises(Exception, match="30d"):
        moment(text, now=NOW)


def test_a_date_without_a_zone_is_meant_in_the_zone_of_now():
    assert moment("2026-01-31", now=NOW) == datetime(2026, 1, 31, tzinfo=UTC)
