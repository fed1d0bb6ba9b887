"""The pieces of a streamed answer, as LlamaIndex's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ragcache.types import Answer, Chunk

from .announcing import Announcement
from .forms import Form
from .inner import CalledTarget
from .replies import Response, closed, copied, is_closing


class Reading:
    """Turns the pipeline's chunks into LlamaIndex's, the status on the last one.

    The model's own last piece waits for the status; no other piece waits for anything.

    Args:
        form: Chat or completion.
        target: What a miss asks.
        announce: Starts the announcement of a call that no model announces.
    """

    def __init__(
        self, form: Form, target: CalledTarget, announce: Callable[[], Announcement]
    ) -> None:
        self._form = form
        self._target = target
        self._announce = announce
        self._announcement: Announcement | None = None
        self._held: Response | None = None
        self._native = False
        self._text = ""

    def take(self, chunk: Chunk) -> Iterator[Any]:
        """Yield what follows from one chunk."""
        for piece in self._pieces(chunk):
            if self._is_ours():
                self._told().piece(piece)
                if chunk.answer is not None:
                    self._told().end(piece, spent=self._target.called)
            yield piece

    def failed(self, error: BaseException) -> None:
        """Tell of a failure, where nobody else does."""
        if self._is_ours() and self._announcement is not None:
            self._announcement.failed(error)

    def _is_ours(self) -> bool:
        return not (self._target.called and self._target.announces)

    def _told(self) -> Announcement:
        if self._announcement is None:
            self._announcement = self._announce()
        return self._announcement

    def _pieces(self, chunk: Chunk) -> Iterator[Any]:
        if chunk.answer is not None:
            yield self._closing(chunk.answer)
        elif isinstance(chunk.raw, Response):
            self._native = True
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
