"""A question understood once: what the gates compare, computed when it is stored."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..keys import fold
from ..types import Embedding, JsonObject
from . import chinese, grammar
from .content import Content, contents
from .quantities import quantities
from .words import words_of

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a question says, in the terms that the gates compare.

    Args:
        text: The question, NFKC-folded and without format characters.
        language: "en", "zh", another ISO code, or "" where unknown.
        quantities: Numbers, units, dates and ids, sorted.
        negations: Negating words, in their order.
        question: The explicit type of the question, or "".
        content: The words that carry the meaning, in their order.
        function: All other words, in their order.
        slots: Which word stands behind which preposition.
        tense: "past", "present", "future" of the first auxiliary, or "".
        flags: "action", "time", "leans", "instruction", "mixed".
        vectors: One unit vector for each content word, int8, 127 for 1; None without an
            embedder that gives token vectors.
        sentence: The sentence vector, int8, scaled to its largest component.
    """

    text: str
    language: str
    quantities: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    question: str = ""
    content: tuple[Content, ...] = ()
    function: tuple[str, ...] = ()
    slots: tuple[tuple[str, str], ...] = ()
    tense: str = ""
    flags: frozenset[str] = frozenset()
    vectors: NDArray[np.int8] | None = field(default=None, compare=False)
    sentence: NDArray[np.int8] | None = field(default=None, compare=False)

    @property
    def leans(self) -> bool:
        """Whether the question cannot be understood alone."""
        return "leans" in self.flags

    @property
    def stems(self) -> tuple[str, ...]:
        """Stems of the content words, in their order."""
        return tuple(word.stem for word in self.content)

    def as_json(self) -> dict[str, Any]:
        """Return the reading as plain JSON values."""
        return {
            "schema": SCHEMA,
            "text": self.text,
            "language": self.language,
            "quantities": list(self.quantities),
            "negations": list(self.negations),
            "question": self.question,
            "content": [word.as_json() for word in self.content],
            "function": list(self.function),
            "slots": [list(slot) for slot in self.slots],
            "tense": self.tense,
            "flags": sorted(self.flags),
            "vectors": _packed(self.vectors),
            "sentence": _packed(self.sentence),
        }

    @classmethod
    def from_json(cls, value: JsonObject | None) -> Reading | None:
        """Return the reading, or None where the value is none of this schema."""
        try:
            return _unpack(value)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, binascii.Error):
            return None


def read(question: str, embedding: Embedding | None = None) -> Reading:
    """Understand a question once.

    Args:
        question: As asked; folded here.
        embedding: Of the same question; its token vectors let a left-over word be explained.
    """
    text = fold(question)
    if chinese.is_chinese(text):
        return _read_chinese(text, question, embedding)
    words = words_of(text)
    counted = quantities(words)
    taken = counted.places | grammar.asking_words(words)
    content, rest = contents(words, taken, embedding, text)
    function = tuple(word.text for word in rest)
    spans = [(word.start, word.end) for word in content]
    return Reading(
        text=text,
        language=grammar.language(words, text),
        quantities=counted.values,
        negations=grammar.negations(words),
        question=grammar.question_type(words),
        content=tuple(word.content for word in content),
        function=function,
        slots=grammar.slots(words, counted.places),
        tense=grammar.tense(words),
        flags=grammar.flags(question, words, [w.content for w in content]),
        vectors=word_vectors(spans, embedding, text),
        sentence=_sentence(embedding),
    )


def _read_chinese(text: str, question: str, embedding: Embedding | None) -> Reading:
    parsed = chinese.parse(text)
    return Reading(
        text=text,
        language="zh",
        quantities=parsed.quantities,
        negations=parsed.negations,
        question=parsed.question,
        content=parsed.content,
        function=parsed.function,
        slots=parsed.slots,
        tense=parsed.tense,
        flags=parsed.flags | grammar.unsafe_flags(question),
        vectors=word_vectors(parsed.spans, embedding, text),
        sentence=_sentence(embedding),
    )


# --- vectors -----------------------------------------------------------------------------------


def word_vectors(
    spans: list[tuple[int, int]], embedding: Embedding | None, text: str
) -> NDArray[np.int8] | None:
    """Return the unit vector of each word: the mean of its word pieces, as int8.

    None where the embedder gives no token vectors, or those of another spelling.
    """
    if embedding is None or embedding.token_vectors is None or embedding.spans is None:
        return None
    if embedding.text != text:
        return None
    pieces = embedding.token_vectors
    starts = np.array([a for a, _ in embedding.spans], dtype=np.int64)
    ends = np.array([b for _, b in embedding.spans], dtype=np.int64)
    rows = np.zeros((len(spans), pieces.shape[1] if pieces.ndim == 2 else 0), dtype=np.float32)
    for at, (start, end) in enumerate(spans):
        inside = (starts < end) & (ends > start)
        if inside.any():
            rows[at] = pieces[inside].mean(axis=0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    packed: NDArray[np.int8] = np.rint(unit * 127).astype(np.int8)
    return packed


def _sentence(embedding: Embedding | None) -> NDArray[np.int8] | None:
    if embedding is None:
        return None
    largest = float(np.abs(embedding.vector).max(initial=0.0))
    if not np.isfinite(largest) or largest == 0.0:
        return None
    packed: NDArray[np.int8] = np.rint(embedding.vector / largest * 127).astype(np.int8)
    return packed


def likeness(one: Reading, other: Reading) -> float | None:
    """Return the cosine similarity of two sentences, or None where a vector is missing.

    Exact to about 0.005: what the signed readings say, whatever an index has found.
    """
    if one.sentence is None or other.sentence is None or one.sentence.shape != other.sentence.shape:
        return None
    a, b = one.sentence.astype(np.float32), other.sentence.astype(np.float32)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / lengths if lengths > 0 else None


def _packed(vectors: NDArray[np.int8] | None) -> list[Any] | None:
    if vectors is None:
        return None
    return [*vectors.shape, base64.b64encode(vectors.tobytes()).decode("ascii")]


def _unpacked(value: Any, words: int) -> NDArray[np.int8] | None:
    if value is None:
        return None
    rows, columns, packed = value
    raw = base64.b64decode(packed, validate=True)
    if rows != words:
        raise ValueError("one vector for each content word is expected")
    return np.frombuffer(raw, dtype=np.int8).reshape(int(rows), int(columns))


def _unpacked_sentence(value: Any) -> NDArray[np.int8] | None:
    if value is None:
        return None
    columns, packed = value
    raw = base64.b64decode(packed, validate=True)
    return np.frombuffer(raw, dtype=np.int8).reshape(int(columns))


def _unpack(value: JsonObject | None) -> Reading | None:
    if not isinstance(value, Mapping) or value["schema"] != SCHEMA:
        return None
    content = tuple(Content.from_json(word) for word in value["content"])
    return Reading(
        text=_text(value["text"]),
        language=_text(value["language"]),
        quantities=_texts(value["quantities"]),
        negations=_texts(value["negations"]),
        question=_text(value["question"]),
        content=content,
        function=_texts(value["function"]),
        slots=tuple((_text(a), _text(b)) for a, b in value["slots"]),
        tense=_text(value["tense"]),
        flags=frozenset(_texts(value["flags"])),
        vectors=_unpacked(value["vectors"], len(content)),
        sentence=_unpacked_sentence(value["sentence"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("text expected")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("a list of texts expected")
    return tuple(_text(part) for part in value)
