"""The story of one request, as a colleague would tell it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .reasons import FORWARD, LOST_PREFIX, NOT_STORED, explained

Row = Mapping[str, Any]


def story(row: Row) -> list[str]:
    """Return what happened to a request, a sentence or two for each step."""
    return [*_asked(row), *_looked_up(row), *_called(row), *_stored(row), *_money(row)]


def _asked(row: Row) -> Iterator[str]:
    version = f", version {row['version']}" if row["version"] else ""
    yield (
        f"Request {row['id']} of tenant {row['tenant']}, {row['at']}, "
        f"namespace {row['namespace']}{version}."
    )
    if row["question"]:
        yield f"Asked: {row['question']}"
    for fault in row["degraded"]:
        yield f"A part of the cache failed and was passed by: {fault}."


def _looked_up(row: Row) -> Iterator[str]:
    took = _milliseconds(row, "lookup")
    if row["status"].startswith("hit"):
        kind = row["status"].removeprefix("hit_")
        alike = f", similarity {row['similarity']:.3f}" if row["similarity"] is not None else ""
        yield f"Answered from the cache{took}: {kind} hit on entry {row['entry']}{alike}."
        if kind == "semantic" and not row["certified"]:
            yield (
                "The error rate of semantic hits is not certified yet: it passed the stricter "
                "threshold and all gates."
            )
        yield from _judged(row)
        return
    nearest = row["nearest"]
    alike = f" The nearest stored question has similarity {nearest:.3f}." if nearest else ""
    yield f"Went forward{took}. {_sentence(explained(row['reason'], FORWARD))}{alike}"
    if row["collapsed"]:
        yield "Another request's call was under way for the same prompt, and answered this one too."


def _judged(row: Row) -> Iterator[str]:
    if row["agreed"] is None:
        return
    verdict = "right" if row["agreed"] else "wrong: its saving is taken back"
    yield f"The hit was judged {verdict} (by {row['judged_by']})."


def _called(row: Row) -> Iterator[str]:
    for note in row["notes"]:
        yield f"Layout: {note}."
    if "target" not in row["seconds"]:
        return
    if row["error"]:
        yield f"The call to {row['model']} failed{_milliseconds(row, 'target')}: {row['error']}."
        return
    first = f", first token after {row['ttft_s']:.3f} s" if row["ttft_s"] is not None else ""
    yield (
        f"{row['model']} answered{_milliseconds(row, 'target')}{first}: "
        f"{_count(row['input'])} tokens in, {_count(row['output'])} out, "
        f"{_count(row['cached'])} of them served from its own prefix cache."
    )
    yield from _reuse(row)


def _reuse(row: Row) -> Iterator[str]:
    predicted, cached = row["predicted"], row["cached"]
    if predicted is None or cached is None:
        return
    if cached >= predicted:
        yield f"As many as predicted ({predicted:,})."
        return
    cause = explained(row["cause"] or "unknown", LOST_PREFIX)
    yield f"{predicted:,} were predicted. {_sentence(cause)}"


def _stored(row: Row) -> Iterator[str]:
    if row["status"].startswith("hit") or "admission" not in row["seconds"]:
        return
    if row["stored"]:
        yield "The answer was stored."
    elif row["stored"] is None:
        yield "The answer was still being stored when it went out."
    else:
        yield f"The answer was not stored. {_sentence(explained(row['store_reason'], NOT_STORED))}"


def _money(row: Row) -> Iterator[str]:
    if row["saved_input"] is not None:
        yield (
            f"Spared: {row['saved_input']:,} tokens in and {_count(row['saved_output'])} out "
            "of the call that made the answer."
        )
    if row["cost"] is None or row["uncached"] is None:
        yield "What it cost is unknown: no price for the model, or no token counts."
        return
    saved = row["uncached"] - row["cost"]
    yield f"Cost ${row['cost']:.6f}, saved ${saved:.6f}."


def _milliseconds(row: Row, stage: str) -> str:
    seconds = row["seconds"].get(stage)
    return "" if seconds is None else f" in {seconds * 1000:,.1f} ms"


def _count(count: int | None) -> str:
    return "an unknown number of" if count is None else f"{count:,}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""
