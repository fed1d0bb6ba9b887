"""Where retrieved documents stand in a prompt that somebody else formatted. Pure.

The texts of the documents are found literally, longest first. What stands around each of them
must be the same for all (or differ only by their metadata, as in "Source: {source}"); only then
can blocks change places without changing what the prompt says. A label that comes from a place
("[1]", "Document 2:") differs from block to block and is no metadata: such a prompt stays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ..types import Formatted, Message

#: How many documents at either end may turn out not to belong to the run of blocks.
_MAX_TRIMMED = 2

#: Characters by which a text is looked for first, and how often before all of it is.
_BEGINNING, _MAX_BEGINNINGS = 48, 64

Side = Literal["before", "after"]
Token = str | tuple[Side, str]
#: Values are printed ahead of a text, behind it, or both; neighbours may share a value.
_SIDES: tuple[tuple[Side, ...], ...] = (("after",), ("before",), ("after", "before"))


class Seen(NamedTuple):
    """A document that this run retrieved: its text, and the values printed beside it."""

    text: str
    metadata: Mapping[str, Any]
    #: The caller's own document.
    origin: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A text cut into head, blocks and tail; `joined()` gives it back byte for byte."""

    head: str
    separator: str
    blocks: tuple[str, ...]
    tail: str
    documents: tuple[Seen, ...]

    def joined(self) -> str:
        """Return the text again."""
        return self.head + self.separator.join(self.blocks) + self.tail


class _Span(NamedTuple):
    start: int
    end: int
    text: str
    document: Seen


def locate(
    messages: Sequence[Message], documents: Sequence[Seen]
) -> tuple[Formatted, tuple[Seen, ...]]:
    """Return the prompt with its blocks located, and the documents that stand in it: those of
    the blocks first, then those that cannot be moved.
    """
    read = tuple(messages)
    where = _fullest(read, documents)
    if where is None:
        return Formatted(messages=read), _standing(read, documents)
    index, part, text = where
    found = cut(text, documents)
    if not isinstance(found, Cut):
        return Formatted(messages=read, unchanged_because=found), _standing(read, documents)
    formatted = Formatted(
        messages=read,
        index=index,
        part=part,
        head=found.head,
        separator=found.separator,
        blocks=found.blocks,
        tail=found.tail,
    )
    placed = {id(seen) for seen in found.documents}
    others = [seen for seen in documents if id(seen) not in placed]
    return formatted, (*found.documents, *_standing(read, others))


def _standing(messages: Sequence[Message], documents: Sequence[Seen]) -> tuple[Seen, ...]:
    """Return the documents whose text is anywhere in the prompt: the answer may rest on them."""
    texts = [text for message in messages for _, text in texts_of(message)]
    return tuple(
        seen
        for seen in documents
        if (literal := seen.text.strip()) and any(literal in text for text in texts)
    )


def _fullest(
    messages: Sequence[Message], documents: Sequence[Seen]
) -> tuple[int, int | None, str] | None:
    """Return message, content part and text that hold the most documents, the latest of equals.

    Turns before the last answer of the model are not ours to change: they were sent already.
    """
    literals = [literal for d in documents if (literal := d.text.strip())]
    if not literals:
        return None
    shortest = min(map(len, literals))
    places = [place for place in _places(messages) if len(place[2]) >= shortest]
    if len(places) == 1:
        text = places[0][2]
        return places[0] if any(_find(text, literal, 0) >= 0 for literal in literals) else None
    best, most = None, 1
    for place in places:
        count = _count(place[2], literals)
        if count >= most:
            best, most = place, count
    return best


def _places(messages: Sequence[Message]) -> Iterator[tuple[int, int | None, str]]:
    """Yield message, content part and text of all that may be changed."""
    answered = max((at for at, m in enumerate(messages) if m.role == "assistant"), default=-1)
    for at, message in enumerate(messages):
        if at < answered and message.role not in ("system", "developer"):
            continue
        for part, text in texts_of(message):
            yield at, part, text


def _count(text: str, literals: Sequence[str]) -> int:
    """Return how many stand in the text, looking behind the one before first: mostly they are in
    the order in which they were retrieved.
    """
    count = behind = 0
    for literal in literals:
        at = _find(text, literal, behind)
        if at < 0 and behind:
            at = _find(text, literal, 0)
        if at >= 0:
            count += 1
            behind = at + len(literal)
    return count


def texts_of(message: Message) -> Iterator[tuple[int | None, str]]:
    """Yield the texts of a message, each with its content part, None for plain text."""
    if isinstance(message.content, str):
        yield None, message.content
        return
    for at, part in enumerate(message.content):
        if part.get("type") == "text":
            yield at, str(part.get("text", ""))


def beside_blocks(formatted: Formatted, at: int) -> str:
    """Return what a message says beside document blocks: all of it where they are in another.

    What counts stands behind them, in their content part and in those that follow; ahead of them
    where nothing does.
    """
    message = formatted.messages[at]
    if not formatted.blocks or formatted.index != at:
        return message.text()
    ahead = behind = ""
    if formatted.part is not None:
        texts = [(part, text) for part, text in texts_of(message) if part is not None]
        ahead = "".join(text for part, text in texts if part < formatted.part)
        behind = "".join(text for part, text in texts if part > formatted.part)
    behind = formatted.tail + behind
    return behind if behind.strip() else ahead + formatted.head


def cut(text: str, documents: Sequence[Seen]) -> Cut | str:
    """Return the text cut into its document blocks, or why it cannot be cut."""
    spans = find_spans(text, documents)
    if not spans:
        return "no document of this run stands in the prompt"
    for first, last in _windows(len(spans)):
        found = _cut_at(text, spans[first:last])
        if found is not None and found.joined() == text:
            return found
    return "the documents are numbered, or formatted unlike each other"


def find_spans(text: str, documents: Sequence[Seen]) -> list[_Span]:
    """Return where the documents stand, in the order of the text and without overlap.

    Mostly all stand there in the order in which they were retrieved. Else the longest one is
    looked for first: a shorter one may be a part of it.
    """
    found = _in_order(text, documents)
    if found is not None:
        return found
    taken: list[_Span] = []
    for document in sorted(documents, key=lambda d: -len(d.text)):
        for literal in _literals(document):
            start = _free(text, literal, taken)
            if start >= 0:
                taken.append(_Span(start, start + len(literal), literal, document))
                break
    return sorted(taken, key=lambda span: span.start)


def _literals(document: Seen) -> Sequence[str]:
    """Return the texts that a document may stand in a prompt as: none where it is blank."""
    stripped = document.text.strip()
    if not stripped:
        return ()
    return (document.text, stripped) if stripped != document.text else (stripped,)


def _in_order(text: str, documents: Sequence[Seen]) -> list[_Span] | None:
    """Return where the documents stand, each behind the one before; None where one does not."""
    found: list[_Span] = []
    behind = 0
    for document in documents:
        for literal in _literals(document):
            start = _find(text, literal, behind)
            if start >= 0:
                break
        else:
            return None
        behind = start + len(literal)
        found.append(_Span(start, behind, literal, document))
    return found


def _free(text: str, literal: str, taken: Sequence[_Span]) -> int:
    """Return the first place of the literal that no span covers, -1 where there is none."""
    at = _find(text, literal, 0)
    while at >= 0:
        over = [s.end for s in taken if s.start < at + len(literal) and at < s.end]
        if not over:
            return at
        at = _find(text, literal, max(over))
    return -1


def _find(text: str, literal: str, start: int) -> int:
    """Return what `str.find` does, by the beginning of the literal first: Python prepares a long
    one at the cost of reading it several times.
    """
    at = start - 1
    for _ in range(_MAX_BEGINNINGS):
        at = text.find(literal[:_BEGINNING], at + 1)
        if at < 0 or text.startswith(literal, at):
            return at
    return text.find(literal, at + 1)


def _windows(count: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of spans to try, all of them first, then without those at the ends."""
    for trimmed in range(max(0, min(_MAX_TRIMMED, count - 2)) + 1):
        for first in range(trimmed + 1):
            yield first, count - (trimmed - first)


def _cut_at(text: str, spans: Sequence[_Span]) -> Cut | None:
    head, tail = text[: spans[0].start], text[spans[-1].end :]
    bodies = [s.text for s in spans]
    documents = tuple(s.document for s in spans)
    if len(spans) == 1:
        return Cut(head=head, separator="", blocks=(bodies[0],), tail=tail, documents=documents)
    gaps = [text[a.end : b.start] for a, b in itertools.pairwise(spans)]
    frame = _frame(gaps, documents, head, tail)
    return None if frame is None else frame.applied(bodies, documents, head, tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What is printed around a document: `before`, its text, `after`; and between two of them."""

    before: tuple[Token, ...]
    separator: str
    after: tuple[Token, ...]

    def applied(
        self, bodies: Sequence[str], documents: tuple[Seen, ...], head: str, tail: str
    ) -> Cut:
        prefixes = _printed_for_each(self.before, documents)
        suffixes = _printed_for_each(self.after, documents)
        blocks = tuple(p + b + s for p, b, s in zip(prefixes, bodies, suffixes, strict=True))
        return Cut(
            head=head.removesuffix(prefixes[0]),
            separator=self.separator,
            blocks=blocks,
            tail=tail.removeprefix(suffixes[-1]),
            documents=documents,
        )


def _frame(gaps: Sequence[str], documents: Sequence[Seen], head: str, tail: str) -> _Frame | None:
    """Return the one frame that explains every gap, the head's end and the tail's start."""
    pairs = list(zip(gaps, documents, documents[1:], strict=False))
    for sides in _SIDES:
        templates = {_template(gap, a, b, sides) for gap, a, b in pairs}
        if len(templates) == 1:
            frame = _framed(templates.pop(), documents, head, tail)
            if frame is not None:
                return frame
    return None


def _framed(
    template: tuple[Token, ...], documents: Sequence[Seen], head: str, tail: str
) -> _Frame | None:
    at = _middle(template)
    if at is None:
        return None
    after, middle, before = template[:at], str(template[at]), template[at + 1 :]
    ahead = _trimmed(head, _printed(before, documents[0]), from_end=True)
    behind = _trimmed(tail, _printed(after, documents[-1]), from_end=False)
    if ahead is None or behind is None:
        return None
    opening = _shared_end(middle, ahead).lstrip()
    closing = _shared_start(middle[: len(middle) - len(opening)], behind).rstrip()
    separator = middle[len(closing) : len(middle) - len(opening)]
    if not separator:
        separator, opening = opening[:1], opening[1:]
    if not separator or any(c.isalnum() for c in separator):
        return None
    return _Frame(before=(opening, *before), separator=separator, after=(*after, closing))


def _template(gap: str, before: Seen, after: Seen, sides: Sequence[Side]) -> tuple[Token, ...]:
    """Return a gap with the metadata values of its two documents replaced by their keys."""
    if gap.isspace():  # a value is more than blanks
        return (gap,)
    tokens: list[Token] = [gap]
    for side in sides:
        document = after if side == "after" else before
        for value, key in _values_in(gap, document):
            tokens = _replaced(tokens, value, (side, key))
    return tuple(tokens)


def _values_in(gap: str, document: Seen) -> list[tuple[str, str]]:
    """Return the metadata values that a gap holds, with their keys, the longest first."""
    found = [
        (printed, str(key))
        for key, value in document.metadata.items()
        if isinstance(value, (str, int, float)) and (printed := str(value)) in gap
        if printed.strip()
    ]
    return sorted(found, key=lambda pair: -len(pair[0])) if len(found) > 1 else found


def _replaced(tokens: Sequence[Token], value: str, mark: tuple[Side, str]) -> list[Token]:
    out: list[Token] = []
    for token in tokens:
        if isinstance(token, tuple) or value not in token:
            out.append(token)
            continue
        for at, piece in enumerate(token.split(value)):
            out += [mark] if at else []
            out += [piece] if piece else []
    return out


def _middle(template: Sequence[Token]) -> int | None:
    """Return the literal that lies behind all values of the document before the gap and ahead of
    all those of the document after it; None where the two are mixed or touch.
    """
    sides = [token[0] for token in template if isinstance(token, tuple)]
    if sides != sorted(sides, reverse=True):  # "before" values must come first
        return None
    lasts = [at for at, token in enumerate(template) if isinstance(token, tuple)]
    befores = [at for at in lasts if template[at][0] == "before"]
    at = befores[-1] + 1 if befores else 0
    return at if at < len(template) and isinstance(template[at], str) else None


def _printed_for_each(tokens: Sequence[Token], documents: Sequence[Seen]) -> list[str]:
    if all(isinstance(token, str) for token in tokens):
        return [_printed(tokens, documents[0])] * len(documents)
    return [_printed(tokens, document) for document in documents]


def _printed(tokens: Sequence[Token], document: Seen) -> str:
    return "".join(t if isinstance(t, str) else str(document.metadata.get(t[1])) for t in tokens)


def _trimmed(text: str, part: str, *, from_end: bool) -> str | None:
    """Return the text without the part at its end (or start), None where it is not there."""
    if from_end:
        return text.removesuffix(part) if text.endswith(part) else None
    return text.removeprefix(part) if text.startswith(part) else None


def _shared_end(a: str, b: str) -> str:
    at = 0
    while at < min(len(a), len(b)) and a[-1 - at] == b[-1 - at]:
        at += 1
    return a[len(a) - at :]


def _shared_start(a: str, b: str) -> str:
    at = 0
    while at < min(len(a), len(b)) and a[at] == b[at]:
        at += 1
    return a[:at]
