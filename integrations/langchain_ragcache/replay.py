"""The pieces of a streamed answer, as LangChain's own chunks."""

from __future__ import annotations

from collections.abc import Iterator

from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import BaseModel

from ragcache.types import Answer, Chunk

from .replies import closing_piece, copied_piece, is_last, last_piece, piece


class Replay:
    """Turns the pipeline's chunks into LangChain's, the status on the last one.

    The model's own last piece waits for the status; no other piece waits for anything.
    """

    def __init__(self, schema: type[BaseModel] | None = None) -> None:
        self._schema = schema
        self._held: ChatGenerationChunk | None = None
        self._native = False

    def take(self, chunk: Chunk) -> Iterator[ChatGenerationChunk]:
        """Yield what follows from one chunk."""
        if chunk.answer is not None:
            yield self._closing(chunk.answer)
        elif isinstance(chunk.raw, ChatGenerationChunk):
            self._native = True
            yield from self._passed(copied_piece(chunk.raw))
        elif chunk.text:
            yield piece(chunk.text)

    def _passed(self, chunk: ChatGenerationChunk) -> Iterator[ChatGenerationChunk]:
        if self._held is not None:
            yield self._held
            self._held = None
        if is_last(chunk):
            self._held = chunk
        else:
            yield chunk

    def _closing(self, answer: Answer) -> ChatGenerationChunk:
        whole = answer.completion.raw if answer.completion else None
        if self._native or (whole is not None and not isinstance(whole, ChatResult)):
            return last_piece(answer, self._held)
        return closing_piece(answer, self._schema)
