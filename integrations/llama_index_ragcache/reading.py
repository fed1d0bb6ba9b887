"""The pieces of a streamed answer, as LlamaIndex's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragcache.types import Answer, Chunk

from .announcing import Telling
from .forms import Form
from .replies import Response, closed, copied, is_closing


class Reading:
    """Turns the pipeline's chunks into LlamaIndex's, the status on the last one.

    The model's own last piece waits for the status; no other piece waits for anything.

    Args:
        form: Chat or completion.
        telling: Who hears of it.
    """

    def __init__(self, form: Form, telling: Telling) -> None:
        self._form = form
        self._telling = telling
        self._held: Response | None = None
        self._text = ""

    def take(self, chunk: Chunk) -> Iterator[Any]:
        """Yield what follows from one chunk."""
        for piece in self._pieces(chunk):
            self._telling.piece(piece)
            if chunk.answer is not None:
                self._telling.end(piece, chunk.answer)
            yield piece

    def failed(self, error: BaseException) -> None:
        """Tell of a failure."""
        self._telling.failed(error)

    def _pieces(self, chunk: Chunk) -> Iterator[Any]:
        if chunk.answer is not None:
            yield self._closing(chunk.answer)
        elif isinstance(chunk.raw, Response):
            yield from self._passed(copied(chunk.raw))
        elif chunk.text:
            self._text += chunk.text
            yield self._form.piece(self._text, chunk.text)

    def _passed(self, piece: Response) -> Iterator[Any]:
        if self._held is not None:
            yield self._held
            self._held = None
        if is_closing(piece):
            self._held = piece
        else:
            yield piece

    def _closing(self, answer: Answer) -> Any:
        if self._held is not None:
            return closed(self._held, answer, delta=self._held.delta)
        raw = answer.completion.raw if answer.completion else None
        if isinstance(raw, Response):
            return closed(raw, answer, delta="")
        return self._form.piece(answer.text, "", answer)
