"""The verb that answers many prompts at once: batch."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, RagCacheError
from .console import bar, note, print_json, say
from .options import AsJson, Config
from .places import settings_from
from .verbs import add

if TYPE_CHECKING:
    from ..factory import RagCache
    from ..types import Answer, Request

#: Fields of a line that are not the request's.
_OURS = frozenset({"id"})


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    add(app, batch, "ragcache batch prompts.jsonl --tenant acme --out answers.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One prompt of the file; `mark` tells it from every other text of a line."""

    number: int
    name: Any
    mark: str
    request: Request


def batch(
    file: Annotated[Path, typer.Argument(help="Requests, JSONL.")],
    tenant: Annotated[
        str | None, typer.Option(help="Whose requests, where a line names no tenant.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Answers, JSONL; FILE.answers.jsonl where none is given.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 4,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Answer the requests of a file: stored answers first, the rest like next to like.

    A line holds the fields of a request: "question", and as needed "documents" (texts, or objects
    with "text", "source", "id"), "system", "history", "model", "params", "id" and so on. An
    answer is written as soon as it is there. Stop it at any moment: the next run asks for what
    has no answer in the output yet, and a line that was changed is asked again.
    """
    out = out or file.with_name(f"{file.stem}.answers.jsonl")
    lines = read_lines(file, tenant)
    done = answered_marks(out)
    left = [line for line in lines if line.mark not in done]
    if len(left) < len(lines):
        note(f"{len(lines) - len(left)} of {len(lines)} have an answer in {out} already")
    counts = asyncio.run(_run(left, out, concurrency, config)) if left else Counter[str]()
    row = {
        "requests": len(lines),
        "before": len(lines) - len(left),
        "hits": counts["hit"],
        "asked": counts["asked"],
        "failed": counts["failed"],
        "out": out,
    }
    if as_json:
        print_json(row)
    else:
        say(f"{counts['hit']} from the cache, {counts['asked']} asked, {counts['failed']} failed")
        say(f"answers are in {out}")
    if counts["failed"]:
        raise typer.Exit(1)


async def _run(
    lines: Sequence[Line], out: Path, concurrency: int, config: Path | None
) -> Counter[str]:
    from ..factory import RagCache

    counts: Counter[str] = Counter()
    async with RagCache.open(settings_from(config)) as cache:
        with bar("answering") as progress, out.open("a", encoding="utf-8") as written:
            progress(0, len(lines))
            async for line, result in _results(cache, lines, concurrency):
                counts[_kind(result)] += 1
                if isinstance(result, Exception):
                    note(f"line {line.number}: {type(result).__name__}: {result}")
                else:
                    written.write(json.dumps(_row(line, result), ensure_ascii=False) + "\n")
                    written.flush()
                progress(counts.total(), len(lines))
    return counts


async def _results(
    cache: RagCache, lines: Sequence[Line], concurrency: int
) -> AsyncIterator[tuple[Line, Answer | Exception]]:
    requests = [line.request for line in lines]
    async for number, result in cache.abatch(requests, concurrency=concurrency):
        yield lines[number], result


def _kind(result: Answer | Exception) -> str:
    if isinstance(result, Exception):
        return "failed"
    return "hit" if result.status.hit else "asked"


def _row(line: Line, answer: Answer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "line": line.number,
        "id": line.name,
        "mark": line.mark,
        "text": answer.text,
        "status": str(answer.status),
        "model": answer.completion.model if answer.completion else "",
        "citations": {label: list(c.sources) for label, c in answer.citations.items()},
        "usage": {name: getattr(usage, name) for name in ("input_tokens", "cached_tokens")}
        | {"output_tokens": usage.output_tokens},
    }


# --- files -------------------------------------------------------------------------------------


def read_lines(file: Path, tenant: str | None) -> list[Line]:
    """Return the requests of a file.

    Raises:
        ConfigError: The file cannot be read, or a line is no request.
    """
    try:
        texts = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    return list(_lines(file, texts, tenant))


def _lines(file: Path, texts: Sequence[str], tenant: str | None) -> Iterator[Line]:
    seen: Counter[str] = Counter()
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            fields = json.loads(text)
            request = request_of(fields, tenant)
        except (ValueError, TypeError, RagCacheError) as error:
            raise ConfigError(f"{file}, line {number}: {error}") from error
        digest = hashlib.sha256(f"{request.tenant}\n{text.strip()}".encode()).hexdigest()[:32]
        seen[digest] += 1  # a line that stands there twice is answered twice
        mark = f"{digest}-{seen[digest]}"
        yield Line(number=number, name=fields.get("id"), mark=mark, request=request)


def request_of(fields: Any, tenant: str | None) -> Request:
    """Return the request of a line.

    Raises:
        ConfigError: It is no object, names no question or tenant, or a field is unknown.
    """
    from ..types import Document, Message, Request

    if not isinstance(fields, Mapping) or not isinstance(fields.get("question"), str):
        raise ConfigError('a line must be an object with a "question"')
    values = {name: value for name, value in fields.items() if name not in _OURS}
    values.setdefault("tenant", tenant)
    if not values["tenant"]:
        raise ConfigError('whose request is it? pass --tenant, or name a "tenant" in the line')
    unknown = sorted(set(values) - set(Request.__slots__))
    if unknown:
        raise ConfigError(f"unknown fields: {', '.join(unknown)}")
    readers: Mapping[str, Callable[[Any], Any]] = {
        "documents": lambda rows: tuple(_object(Document, "text", row) for row in rows),
        "history": lambda rows: tuple(_object(Message, "content", row) for row in rows),
        "tools": tuple,
        "access": frozenset,
    }
    return Request(**{k: readers[k](v) if k in readers else v for k, v in values.items()})


def _object(kind: Any, only: str, row: Any) -> Any:
    """Return a document or a message of plain JSON; a text alone is its main field."""
    fields = {only: row} if isinstance(row, str) else dict(row)
    readers: Mapping[str, Callable[[Any], Any]] = {
        "access": frozenset,
        "aliases": tuple,
        "tool_calls": tuple,
    }
    return kind(**{k: readers[k](v) if k in readers else v for k, v in fields.items()})


def answered_marks(out: Path) -> frozenset[str]:
    """Return what has an answer; a last line that was cut in the middle is taken off.

    Raises:
        ConfigError: The file holds something else.
    """
    if not out.exists():
        return frozenset()
    whole = out.read_bytes()
    kept = whole[: whole.rfind(b"\n") + 1]
    if len(kept) < len(whole):
        out.write_bytes(kept)
    try:
        return frozenset(json.loads(line)["mark"] for line in kept.splitlines())
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{out} is there already and holds no answers of `ragcache batch`: choose another --out"
        ) from error
