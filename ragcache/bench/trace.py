"""Traces of retrievals: documents `{"id", "text"}`, requests `{"query", "ids", ...}`, JSONL."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..types import Document, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A replayable trace. `tokens` counts each document's text alone."""

    documents: dict[Any, Document]
    tokens: dict[Any, int]
    requests: tuple[tuple[str, tuple[Any, ...]], ...]

    @property
    def k(self) -> int:
        """The most documents one request holds."""
        return max((len(ids) for _, ids in self.requests), default=0)

    @property
    def document_tokens(self) -> int:
        """Document tokens of all requests."""
        return sum(self.tokens[one] for _, ids in self.requests for one in ids)

    def request(self, number: int) -> Request:
        """Return one request as a chain would send it."""
        query, ids = self.requests[number]
        documents = tuple(self.documents[one] for one in ids)
        return Request(tenant="bench", question=query, documents=documents)


def read_trace(
    docs: Path | str,
    trace: Path | str,
    *,
    count: Callable[[str], int],
    k: int | None = None,
    limit: int | None = None,
    shuffle: int | None = None,
) -> Trace:
    """Return a trace from its two files.

    Args:
        docs: The documents.
        trace: The requests.
        count: Counts the tokens of a text.
        k: Cuts each request to its first k documents.
        limit: Cuts the trace to its first requests, after shuffling.
        shuffle: Seed of a shuffle; file order for None.

    Raises:
        ConfigError: A file is missing, a line is not JSON, or a request names an unknown document.
    """
    texts = {row["id"]: str(row["text"]) for row in _rows(Path(docs), "id", "text")}
    requests = [
        (str(row.get("query", "")), tuple(dict.fromkeys(row["ids"]))[:k])
        for row in _rows(Path(trace), "ids")
    ]
    unknown = next((one for _, ids in requests for one in ids if one not in texts), None)
    if unknown is not None:
        raise ConfigError(f"{trace}: document {unknown!r} is not in {docs}")
    if shuffle is not None:
        random.Random(shuffle).shuffle(requests)  # noqa: S311 -- a reproducible order, no secret
    return Trace(
        documents={one: Document(text=text, source=str(one)) for one, text in texts.items()},
        tokens={one: count(text) for one, text in texts.items()},
        requests=tuple(requests[:limit]),
    )


def _rows(path: Path, *fields: str) -> Iterator[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{path}, line {number}: not JSON: {error.msg}") from error
        missing = [name for name in fields if not isinstance(row, dict) or name not in row]
        if missing:
            raise ConfigError(f"{path}, line {number}: {missing[0]!r} is missing")
        yield row
