"""A question understood once: what the gates compare, computed when it is stored."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..keys import fold
from ..types import Embedding, JsonObject
from . import english
from .words import Word, stem, words_of

SCHEMA = 1

_QUESTION_TYPES = (
    ("how many", "count"),
    ("how much", "amount"),
    ("how long", "duration"),
    ("how often", "frequency"),
    ("how far", "distance"),
    ("how old", "age"),
    ("who", "who"),
    ("when", "when"),
    ("where", "where"),
    ("why", "why"),
)
_LEANING = frozenset(
    ("it", "its", "they", "them", "their", "that", "this", "those", "these", "he", "him", "she")
)
_INSTRUCTION = re.compile(
    r"\b(ignore|disregard|forget)\b.{0,40}\b(previous|above|prior|instruction|document|rule)s?"
    r"|\b(system|assistant)\s*:|\bsay (that )?pay to\b|\breply only\b|\band nothing else\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a question says, in the terms that the gates compare.

    Args:
        text: The question, NFKC-folded and without format characters.
        language: "en", "zh" or "" where unknown.
        quantities: Numbers, units, dates and ids, sorted.
        negations: How many negating words.
        question: The explicit type of the question, or "".
        content: Stems of the words that carry the meaning, in their order.
        names: Capitalised words that do not open the sentence.
        function: All other words, sorted.
        flags: "action", "time", "leans", "instruction".
        vectors: One unit vector for each content word, int8, 127 for 1; None without an
            embedder that gives token vectors.
    """

    text: str
    language: str
    quantities: tuple[str, ...]
    negations: int
    question: str
    content: tuple[str, ...]
    names: tuple[str, ...]
    function: tuple[str, ...]
    flags: frozenset[str]
    vectors: NDArray[np.int8] | None = field(default=None, compare=False)

    @property
    def leans(self) -> bool:
        """Whether the question cannot be understood alone."""
        return "leans" in self.flags

    def as_json(self) -> dict[str, Any]:
        """Return the reading as plain JSON values."""
        return {
            "schema": SCHEMA,
            "text": self.text,
            "language": self.language,
            "quantities": list(self.quantities),
            "negations": self.negations,
            "question": self.question,
            "content": list(self.content),
            "names": list(self.names),
            "function": list(self.function),
            "flags": sorted(self.flags),
            "vectors": _packed(self.vectors),
        }

    @classmethod
    def from_json(cls, value: JsonObject | None) -> Reading | None:
        """Return the reading, or None where the value is none of this schema."""
        try:
            return _unpack(value)
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error):
            return None


def read(question: str, embedding: Embedding | None = None) -> Reading:
    """Understand a question once.

    Args:
        question: As asked; folded here.
        embedding: Of the same question; its token vectors let a left-over word be explained.
    """
    text = fold(question)
    words = words_of(text)
    content = tuple(w for w in words if _is_content(w))
    names = frozenset(w.stem for w in content if w.proper)
    return Reading(
        text=text,
        language=_language(text),
        quantities=tuple(sorted(_quantities(words))),
        negations=sum(w.text in english.NEGATIONS for w in words),
        question=_question_type(words),
        content=tuple(w.stem for w in content),
        names=tuple(sorted(names)),
        function=tuple(sorted(w.text for w in words if w not in content)),
        flags=_flags(text, words),
        vectors=_word_vectors(content, embedding),
    )


def _is_content(word: Word) -> bool:
    text = word.text
    return not (
        text in english.FUNCTION
        or text in english.FRAME
        or text in english.NEGATIONS
        or text in english.NUMBERS
        or not text[0].isalpha()
    )


def _language(text: str) -> str:
    if re.search(r"[\u3400-\u9fff]", text):
        return "zh"
    return "en" if re.search(r"[A-Za-z]", text) else ""


def _quantities(words: Sequence[Word]) -> list[str]:
    found = []
    for word in words:
        if word.text[0].isdigit() or word.text in "£$€¥%":
            found.append(word.text.replace(",", ""))
        elif word.text in english.NUMBERS and word.text != "one":
            found.append(english.NUMBERS[word.text])
        elif word.stem in english.DAYS or (word.text in english.MONTHS and word.text != "may"):
            found.append(word.stem)
    return found


def _question_type(words: Sequence[Word]) -> str:
    joined = " ".join(w.text for w in words)
    for phrase, kind in _QUESTION_TYPES:
        if joined.startswith(phrase) or f" {phrase} " in joined:
            return kind
    return ""


def _flags(text: str, words: Sequence[Word]) -> frozenset[str]:
    flags = set()
    texts = [w.text for w in words]
    spoken = [t for t in texts if t not in english.FRAME]
    if spoken and spoken[0] in english.ACTIONS:
        flags.add("action")
    if any(t in english.TIME_WORDS for t in texts):
        flags.add("time")
    if _INSTRUCTION.search(text):
        flags.add("instruction")
    content = [w for w in words if _is_content(w)]
    if len(content) < 3 and any(t in _LEANING for t in texts):
        flags.add("leans")
    return frozenset(flags)


def _word_vectors(content: Sequence[Word], embedding: Embedding | None) -> NDArray[np.int8] | None:
    if embedding is None or embedding.token_vectors is None or embedding.spans is None:
        return None
    rows = [_vector(word, embedding) for word in content]
    if not rows:
        return np.zeros((0, embedding.token_vectors.shape[1]), dtype=np.int8)
    return np.rint(np.stack(rows) * 127).astype(np.int8)


def _vector(word: Word, embedding: Embedding) -> NDArray[np.float32]:
    assert embedding.token_vectors is not None and embedding.spans is not None  # noqa: S101, PT018 -- checked by the caller
    mine = [i for i, (a, b) in enumerate(embedding.spans) if a < word.end and b > word.start]
    if not mine:
        return np.zeros(embedding.token_vectors.shape[1], dtype=np.float32)
    mean: NDArray[np.float32] = embedding.token_vectors[mine].mean(axis=0)
    norm = float(np.linalg.norm(mean))
    return mean / norm if norm > 0 else mean


def _packed(vectors: NDArray[np.int8] | None) -> list[Any] | None:
    if vectors is None:
        return None
    return [*vectors.shape, base64.b64encode(vectors.tobytes()).decode("ascii")]


def _unpacked(value: Any) -> NDArray[np.int8] | None:
    if value is None:
        return None
    rows, columns, packed = value
    raw = base64.b64decode(packed, validate=True)
    return np.frombuffer(raw, dtype=np.int8).reshape(int(rows), int(columns))


def _unpack(value: JsonObject | None) -> Reading | None:
    if not isinstance(value, Mapping) or value["schema"] != SCHEMA:
        return None
    return Reading(
        text=str(value["text"]),
        language=str(value["language"]),
        quantities=tuple(map(str, value["quantities"])),
        negations=int(value["negations"]),
        question=str(value["question"]),
        content=tuple(map(str, value["content"])),
        names=tuple(map(str, value["names"])),
        function=tuple(map(str, value["function"])),
        flags=frozenset(map(str, value["flags"])),
        vectors=_unpacked(value["vectors"]),
    )


__all__ = ["Reading", "read", "stem"]
