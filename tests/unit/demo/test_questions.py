"""What the demonstration asks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ragcache.demo.documents import passages
from ragcache.demo.questions import questions_for, read_questions
from ragcache.errors import ConfigError


def test_about_forty_questions_of_every_kind() -> None:
    questions = questions_for(None, ())
    assert 38 <= len(questions) <= 45
    assert set(Counter(question.kind for question in questions)) == {
        "new",
        "repeat",
        "paraphrase",
        "trap",
        "follow-up",
    }


def test_repeats_and_paraphrases_share_an_intent_and_nothing_else_does() -> None:
    asked: set[str] = set()
    for question in questions_for(None, ()):
        again = question.kind in ("repeat", "paraphrase")
        assert (question.intent in asked) is again, question
        asked.add(question.intent)


def test_no_two_intents_are_asked_in_the_same_words() -> None:
    intents: dict[str, str] = {}
    for question in questions_for(None, ()):
        assert intents.setdefault(question.text.casefold(), question.intent) == question.intent


def test_a_folder_gets_questions_about_its_texts(tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}.md").write_text(f"# Chapter {number} of the log\n\nCalm sea.")
    questions = questions_for(tmp_path, passages(tmp_path))
    assert len(questions) == 40
    assert {"new", "repeat", "paraphrase", "trap"} == {question.kind for question in questions}
    assert questions[0].text == "What does Chapter 0 of the log say?"


def test_a_folder_may_bring_its_own_questions(tmp_path: Path) -> None:
    (tmp_path / "questions.toml").write_text(
        '[[question]]\nkind = "new"\nintent = "tide"\ntext = "When is high tide?"\n'
    )
    (question,) = questions_for(tmp_path, ())
    assert question.text == "When is high tide?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[question]", "no TOML"),
        ("", "holds no"),
        ('[[question]]\nkind = "odd"\nintent = "a"\ntext = "b"', "needs text, intent and a kind"),
        ('[[question]]\nkind = "new"\nintent = "a"', "needs text, intent and a kind"),
        (
            '[[question]]\nkind = "follow-up"\nintent = "a"\ntext = "And?"\nafter = "z"',
            "not asked before",
        ),
    ],
)
def test_malformed_questions_are_explained(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "questions.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_questions(file)
