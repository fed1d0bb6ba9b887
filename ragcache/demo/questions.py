"""What the demonstration asks, each question with what is meant by it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ..errors import ConfigError
from .documents import Passage

Kind = Literal["new", "repeat", "paraphrase", "trap", "follow-up"]

_LANGUAGE_REFERENCE = Path(__file__).with_name("questions.toml")
#: A folder may bring its own questions under this name.
OWN_QUESTIONS = "questions.toml"
_SUBJECTS = 8
_SUBJECT_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question, and what would be a wrong answer to it.

    Args:
        text: As it is asked.
        kind: How it relates to earlier ones.
        intent: What is asked. An answer written for another intent is a wrong hit.
        after: Intent of the earlier question that a follow-up leans on.
    """

    text: str
    kind: Kind
    intent: str
    after: str = ""


def questions_for(folder: Path | None, passages: Sequence[Passage]) -> tuple[Question, ...]:
    """Return the questions for the language reference, or for a folder of texts.

    A folder may hold `questions.toml`; else questions are made from the titles of its texts.

    Raises:
        ConfigError: The folder's own questions are malformed.
    """
    if folder is None:
        return read_questions(_LANGUAGE_REFERENCE)
    own = folder / OWN_QUESTIONS
    return read_questions(own) if own.is_file() else tuple(_made(_subjects(passages)))


def read_questions(file: Path) -> tuple[Question, ...]:
    """Return the questions of a TOML file.

    Raises:
        ConfigError: It is no TOML, or a question lacks a field or leans on one not asked before.
    """
    try:
        rows = tomllib.loads(file.read_text(encoding="utf-8")).get("question", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is no TOML that can be read: {error}") from error
    questions = tuple(_question(row, file) for row in rows)
    if not questions:
        raise ConfigError(f"{file} holds no [[question]]")
    _check_order(questions, file)
    return questions


def _question(row: dict[str, Any], file: Path) -> Question:
    kinds: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
    kind = kinds.get(str(row.get("kind")))
    if kind is None or not row.get("text") or not row.get("intent"):
        raise ConfigError(
            f"{file}: a question needs text, intent and a kind ({', '.join(kinds)}), not {row}"
        )
    return Question(text=row["text"], kind=kind, intent=row["intent"], after=row.get("after", ""))


def _check_order(questions: Sequence[Question], file: Path) -> None:
    asked: set[str] = set()
    for question in questions:
        if question.after and question.after not in asked:
            raise ConfigError(
                f"{file}: {question.text!r} follows {question.after!r}, which is not asked before"
            )
        asked.add(question.intent)


# --- questions made from titles ----------------------------------------------------------------


def _subjects(passages: Sequence[Passage]) -> list[str]:
    """Return titles, spread over the texts; first lines of passages where texts are few."""
    titles = list(dict.fromkeys(passage.title for passage in passages))
    if len(titles) < _SUBJECTS:
        lines = (passage.text.split("\n\n", 1)[-1].split("\n", 1)[0] for passage in passages)
        titles = list(dict.fromkeys([*titles, *lines]))
    step = max(1, len(titles) // _SUBJECTS)
    return [_short(title) for title in titles[::step][:_SUBJECTS]]


def _short(title: str) -> str:
    return " ".join(title.strip("#*=_- \t").split())[:_SUBJECT_CHARACTERS].rstrip(" .?!")


def _made(subjects: Sequence[str]) -> Iterator[Question]:
    """Yield five questions on each subject, turn by turn, as several readers would ask them."""
    for kind, part, form in (
        ("new", "about", "What does {} say?"),
        ("new", "terms", "Which terms does {} define?"),
        ("paraphrase", "about", "What is it that {} says?"),
        ("trap", "silence", "What does {} not say?"),
        ("repeat", "about", "what does {} say"),
    ):
        for subject in subjects:
            yield Question(text=form.format(subject), kind=kind, intent=f"{part}: {subject}")  # type: ignore[arg-type]  # the words above
