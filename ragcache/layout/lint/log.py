"""Faults that can be seen in recorded requests."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...keys import normal_text
from ..plan import Count, quarter_of_characters
from ..rules import CacheRules
from .diff import common_prefix, diff_records, rendered_texts, varying
from .findings import RULES, Finding, hidden, unique
from .overlap import overlaps
from .records import Record
from .reuse import lost_reuse
from .segments import Located, locate

_SCORED = re.compile(
    r"\b(score|rank|distance|similarity|relevance)\b[\"')\]]*\s*[:=]?\s*[\"'(]?\s*\d"
    r"|\b(last_accessed\w*|accessed_at|retrieved_at)\b",
    re.I,
)
_POSITION = re.compile(
    r"(?:\[|\b(?:document|source|passage|context|chunk|doc)\s*#?)\s*(\d{1,3})\b", re.I
)
_RANKING = re.compile(
    r"\b(importance|relevance|rank(?:ing|ed)?)\b[^\n]{0,40}[:>]|\d+\s*>\s*\d+\s*>\s*\d+", re.I
)
#: Requests that must agree before a pattern is reported.
_ENOUGH = 2
#: Lost reuse worth a finding, as a share of document tokens.
_LOST = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What the rules need to know beside the log.

    Args:
        rules: Finds a model's provider rules, None where it is not listed.
        count: Counts tokens.
        block_size: The engine's KV block size in tokens, where an engine serves.
    """

    rules: Callable[[str], CacheRules | None]
    count: Count = quarter_of_characters
    block_size: int | None = None


def lint_log(records: Sequence[Record], settings: LogSettings) -> tuple[Finding, ...]:
    """Return the faults of recorded requests, in the order in which they were sent."""
    located = [locate(record, records) for record in records]
    found: list[Finding] = []
    for check in (_drift, _changed, _marks, _keys, _prefixes, _tenants):
        found.extend(check(records, settings))
    for one in located:
        found.extend(_blocks(one, settings))
    found.extend(_documents(records))
    found.extend(overlaps(located, settings.count))
    found.extend(lost_reuse(located, settings.count, least=_LOST))
    return unique(found)


def _finding(rule: str, record: Record, detail: str = "") -> Finding:
    return Finding(rule=rule, path=record.path, line=record.line, detail=detail)


def _pairs(records: Sequence[Record]) -> Iterator[tuple[Record, Record]]:
    """Yield each request with the one before it of the same tenant and model."""
    last: dict[tuple[str, str], Record] = {}
    for record in records:
        before = last.get((record.tenant, record.model))
        if before is not None:
            yield before, record
        last[record.tenant, record.model] = record


def _drift(records: Sequence[Record], settings: LogSettings) -> Iterator[Finding]:
    """Clock values, ids, key order, tool order and blanks that end the common prefix early."""
    del settings
    for before, after in _pairs(records):
        difference = diff_records(before, after)
        if difference is None or difference.cause not in RULES:
            continue
        if difference.part != "tools" and not _has_stable_behind(before, after, difference.at):
            continue
        detail = f"{difference.part}, byte {difference.offset}"
        yield _finding(difference.cause, after, detail)


def _has_stable_behind(before: Record, after: Record, at: int) -> bool:
    """Return whether something behind the difference would be worth reusing."""
    known = {line for line in before.prompt[at:].splitlines() if len(line) >= 40}
    return any(line in known for line in after.prompt[at:].splitlines())


# --- what stands around the documents ---------------------------------------------------------


def _blocks(located: Located, settings: LogSettings) -> Iterator[Finding]:
    record = located.record
    if not located.blocks:
        return
    for block in located.blocks:
        scored = _SCORED.search(block.frame) or _SCORED.search(block.extra)
        if scored:
            yield _finding("R2", record, hidden(scored[0]))
            break
    numbers = [match[1] for block in located.blocks if (match := _POSITION.search(block.frame))]
    if len(numbers) >= _ENOUGH and numbers in (_counted(numbers, 0), _counted(numbers, 1)):
        yield _finding("R3", record, f"labels {numbers[0]} to {numbers[-1]}")
    question = record.question
    if len(question) >= 8 and question in located.before:
        yield _finding("R4", record)
    ranking = _RANKING.search(located.before)
    if ranking:
        yield _finding("R12", record, hidden(ranking[0]))
    if settings.block_size is not None:
        short = sum(1 for b in located.blocks if settings.count(b.text) < settings.block_size)
        if short:
            yield _finding("R14", record, f"{short} documents under {settings.block_size} tokens")


def _counted(numbers: Sequence[str], first: int) -> list[str]:
    return [str(at) for at in range(first, first + len(numbers))]


def _documents(records: Sequence[Record]) -> Iterator[Finding]:
    """The same id with another text, and the same text in other bytes."""
    texts: dict[str, str] = {}
    for record in records:
        for document in record.documents:
            before = texts.setdefault(document.id, document.text)
            if before == document.text:
                continue
            alike = _bare(before) == _bare(document.text) or _is_part(before, document.text)
            yield _finding("R6" if alike else "R15", record, f"document {hidden(document.id)}")
            texts[document.id] = document.text


def _bare(text: str) -> str:
    return re.sub(r"[\W_]+", "", re.sub(r"<[^>]{1,20}>|\*\*|__", "", normal_text(text)).casefold())


def _is_part(one: str, other: str) -> bool:
    """Return whether one text is the other one shortened: compression, not another version."""
    short, long = sorted((_bare(one), _bare(other)), key=len)
    return len(short) >= 20 and short in long


# --- what the provider does with it ------------------------------------------------------------


def _marks(records: Sequence[Record], settings: LogSettings) -> Iterator[Finding]:
    prefixes: dict[str, set[int]] = defaultdict(set)
    for at, record in enumerate(records):
        for index, text in enumerate(record.texts):
            if text.marked:
                prefixes[_upto(record, index)].add(at)
    for record in records:
        rules = settings.rules(record.model)
        marked = [index for index, text in enumerate(record.texts) if text.marked]
        for index in marked:
            read_again = len(prefixes[_upto(record, index)]) > 1
            if not read_again and varying(rendered_texts(record.texts[: index + 1])):
                yield _finding("R7", record, f"breakpoint {marked.index(index) + 1}")
        if rules is not None and rules.lookback > 1:
            gaps = [b - a for a, b in zip([-1, *marked], marked, strict=False)]
            if any(gap > rules.lookback for gap in gaps):
                yield _finding("R11", record, f"{max(gaps)} blocks, {rules.lookback} looked back")
        if rules is not None and rules.implicit and not _is_explicit(record):
            yield _finding("R8", record, rules.name)


def _upto(record: Record, index: int) -> str:
    return record.tools + rendered_texts(record.texts[: index + 1])


def _is_explicit(record: Record) -> bool:
    for place in (record.body, record.body.get("extra_body") or {}):
        options = place.get("prompt_cache_options")
        if isinstance(options, dict) and options.get("mode") == "explicit":
            return True
    return False


def _keys(records: Sequence[Record], settings: LogSettings) -> Iterator[Finding]:
    sent: dict[str, list[float]] = defaultdict(list)
    for record in records:
        rules = settings.rules(record.model)
        if rules is None or not rules.key_field:
            continue
        extra = record.body.get("extra_body") or {}
        key = record.body.get(rules.key_field) or extra.get(rules.key_field)
        if not key:
            yield _finding("R9", record, f"no {rules.key_field}")
            continue
        if record.at_s is None or rules.requests_per_key_minute is None:
            continue
        times = sent[str(key)]
        times.append(record.at_s)
        recent = sum(1 for at_s in times if record.at_s - at_s < 60)
        if recent > rules.requests_per_key_minute:
            yield _finding("R9", record, f"{recent} requests a minute on one key")


def _prefixes(records: Sequence[Record], settings: LogSettings) -> Iterator[Finding]:
    for before, after in _pairs(records):
        rules = settings.rules(after.model)
        if rules is None or rules.min_tokens <= 1:
            continue
        shared = settings.count(after.prompt[: common_prefix(before, after)])
        if 0 < shared < rules.min_tokens:
            detail = f"{shared} tokens shared, {rules.min_tokens} needed by {rules.name}"
            yield _finding("R10", after, detail)


def _tenants(records: Sequence[Record], settings: LogSettings) -> Iterator[Finding]:
    """A tenant's name or salt in front of the part that varies."""
    del settings
    for record in records:
        stable = record.prompt.removesuffix(record.question)
        salt = str(record.body.get("cache_salt") or "")
        for kind, value in (("tenant", record.tenant), ("cache_salt", salt)):
            if len(value) >= 3 and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", stable):
                yield _finding("R13", record, f"the value of {kind} is in the prompt")


def _changed(records: Sequence[Record], settings: LogSettings) -> Iterator[Finding]:
    """Earlier turns of a conversation sent again with other blanks."""
    del settings
    for before, after in _pairs(records):
        known = {"".join(t.text.split()): t.text for t in before.texts if len(t.text) >= 40}
        for text in after.texts[:-1]:
            sent = known.get("".join(text.text.split()))
            if sent is not None and sent != text.text:
                yield _finding("whitespace", after, f"an earlier {text.role} message")
                break
