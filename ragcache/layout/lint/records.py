"""Recorded requests, as any gateway or client writes them: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from ...keys import canonical_json

_MARKS = ("cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint")
_BODIES = ("request", "body", "payload", "kwargs")
_TENANTS = ("tenant", "tenant_id", "customer_id", "org_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text part of a request as sent. `marked` says that it carries a cache breakpoint."""

    role: str
    text: str
    marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDocument:
    """A document that was logged beside the request."""

    id: str
    text: str
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One recorded request.

    Args:
        path: File. line: Line in it.
        body: As sent.
        tools: As sent, serialised in their order.
        texts: Every text part in processing order: system first, then messages.
        documents: Where the log has them.
        question: Where the log has it, else the last line of the last user text.
        tenant: Whose it is, where the log says so.
        at_s: When it was sent, where the log says so.
    """

    path: str
    line: int
    body: Mapping[str, Any]
    tools: str
    texts: tuple[Text, ...]
    documents: tuple[LoggedDocument, ...] = ()
    question: str = ""
    tenant: str = ""
    at_s: float | None = None

    @property
    def model(self) -> str:
        """The model asked."""
        return str(self.body.get("model", ""))

    @property
    def prompt(self) -> str:
        """The whole prompt as one text: tools, then each part with its role."""
        return self.tools + "".join(rendered(text) for text in self.texts)


def rendered(text: Text) -> str:
    """Return a part as it stands in the prompt."""
    return f"<|{text.role}|>\n{text.text}\n"


def read_records(text: str, *, path: str = "<log>") -> tuple[Record, ...]:
    """Return the requests of a JSONL file, or of one JSON value.

    Raises:
        ConfigError: A line is not JSON, or holds no request.
    """
    return tuple(_record(value, path, line) for line, value in _values(text, path))


def _values(text: str, path: str) -> Iterator[tuple[int, Any]]:
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        whole = None
    if isinstance(whole, list):
        yield from enumerate(whole, start=1)
        return
    if whole is not None:
        yield 1, whole
        return
    for line, row in enumerate(text.splitlines(), start=1):
        if not row.strip():
            continue
        try:
            yield line, json.loads(row)
        except json.JSONDecodeError as error:
            raise ConfigError(f"{path}, line {line}: not JSON: {error.msg}") from error


def _record(value: Any, path: str, line: int) -> Record:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}, line {line}: a request is a JSON object")
    body = next((value[k] for k in _BODIES if isinstance(value.get(k), Mapping)), value)
    if not isinstance(body.get("messages", body.get("input")), (list, str)):
        raise ConfigError(f"{path}, line {line}: no messages: is this a recorded request?")
    texts = tuple(_texts(body))
    tools = body.get("tools") or []
    return Record(
        path=path,
        line=line,
        body=body,
        tools=json.dumps(tools, ensure_ascii=False) if tools else "",
        texts=texts,
        documents=tuple(_documents(value.get("documents") or [])),
        question=str(value.get("question") or _last_line(texts)),
        tenant=str(next((value[k] for k in _TENANTS if value.get(k)), "")),
        at_s=_seconds(value),
    )


def _texts(body: Mapping[str, Any]) -> Iterator[Text]:
    yield from _content("system", body.get("system") or body.get("instructions") or [])
    messages = body.get("messages", body.get("input"))
    if isinstance(messages, str):
        yield Text(role="user", text=messages)
        return
    for message in messages or []:
        if isinstance(message, Mapping):
            yield from _content(str(message.get("role", "user")), message.get("content") or [])


def _content(role: str, content: Any) -> Iterator[Text]:
    if isinstance(content, str):
        yield Text(role=role, text=content)
        return
    for part in content if isinstance(content, Sequence) else []:
        if isinstance(part, str):
            yield Text(role=role, text=part)
        elif isinstance(part, Mapping):
            marked = any(mark in part for mark in _MARKS)
            text = part.get("text") or part.get("content") or ""
            plain = text if isinstance(text, str) else canonical_json(text)
            yield Text(role=role, text=plain, marked=marked)


def _documents(rows: Sequence[Any]) -> Iterator[LoggedDocument]:
    for at, row in enumerate(rows):
        if isinstance(row, str):
            yield LoggedDocument(id=str(at), text=row)
            continue
        text = row.get("text") or row.get("page_content") or row.get("content") or ""
        score = row.get("score")
        yield LoggedDocument(
            id=str(row.get("id") or row.get("source") or at),
            text=str(text),
            score=float(score) if isinstance(score, (int, float)) else None,
        )


def _last_line(texts: Sequence[Text]) -> str:
    last = next((text for text in reversed(texts) if text.role == "user"), None)
    lines = [line for line in (last.text if last else "").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _seconds(value: Mapping[str, Any]) -> float | None:
    for name in ("at_s", "time", "ts", "timestamp", "created"):
        stamp = value.get(name)
        if isinstance(stamp, (int, float)):
            return float(stamp)
    return None
