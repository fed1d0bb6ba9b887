"""The verb that does by itself what people check by hand: verify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from .console import print_json, print_table, say, shown
from .options import AsJson, Config
from .places import settings_from
from .verbs import add

if TYPE_CHECKING:
    from .verifying import LookupCheck, PrefixCheck


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    add(app, verify, "ragcache verify")


def verify(config: Config = None, as_json: AsJson = False) -> None:
    """Try prefix reuse, a paraphrase and a trap against your target, embedder and store.

    The prefix pair sends the same long prefix with two questions and compares time to the first
    token and cached tokens. Then one question is stored and asked again: in the same words, in
    other words, and as a trap that asks for another unit and must not be served. English and
    Chinese; a tenant of its own, removed again. Exits with 3 where a trap was served, the same
    question was not, or the target failed.
    """
    import asyncio

    from .verifying import lookup_checks, prefix_checks

    settings = settings_from(config)
    lookups = asyncio.run(lookup_checks(settings))
    prefixes = asyncio.run(prefix_checks(settings))
    if as_json:
        print_json(
            {"lookup": [_plain(c) for c in lookups], "prefix": [asdict(p) for p in prefixes]}
        )
    else:
        _tell_lookups(lookups)
        _tell_prefixes(prefixes)
        _tell_table()
    if _failed(lookups, prefixes):
        raise typer.Exit(3)


def _failed(lookups: Sequence[LookupCheck], prefixes: Sequence[PrefixCheck]) -> bool:
    return any(c.verdict == "FAIL" for c in lookups) or any(p.verdict == "failed" for p in prefixes)


def _plain(check: LookupCheck) -> dict[str, Any]:
    return {**asdict(check), "verdict": check.verdict}


def _tell_lookups(checks: Sequence[LookupCheck]) -> None:
    print_table(
        "answer cache: one question was stored, then asked again",
        ("", "language", "asked", "question", "served", "similarity", "ms", "why"),
        [
            (
                c.verdict,
                c.language,
                c.kind,
                c.asked,
                c.served,
                None if c.similarity is None else round(c.similarity, 3),
                round(c.milliseconds, 1),
                _why(c),
            )
            for c in checks
        ],
    )
    for check in checks:
        if check.verdict == "FAIL":
            say(_advice(check))


def _why(check: LookupCheck) -> str:
    from ..telemetry.reasons import FORWARD, explained

    return f"{check.reason} hit" if check.served else explained(check.reason, FORWARD)


def _advice(check: LookupCheck) -> str:
    if check.served:
        return (
            f"a trap was served ({check.language}, similarity {shown(check.similarity)}): the "
            f"answer to {check.stored!r} for {check.asked!r}. Set lookup.uncertified_threshold "
            "above that, or give an embedder that tells the two apart, until this is clean"
        )
    return f"the same question again was not served ({check.language}): `ragcache doctor`"


def _tell_prefixes(checks: Sequence[PrefixCheck]) -> None:
    if not checks:
        say("prefix pair: no target is set; set api.base_url and model.name")
        return
    print_table(
        "prefix reuse: the same long prefix with two questions",
        ("language", "call", "first token s", "tokens in", "cached", "verdict"),
        [
            (check.language, name, call.ttft_s, call.input, call.cached, check.verdict)
            for check in checks
            for name, call in (("first", check.first), ("second", check.second))
        ],
    )
    for advice in dict.fromkeys(check.advice for check in checks if check.advice):
        say(f"look at: {advice}")


def _tell_table() -> None:
    from ..telemetry.report import PUBLISHED

    print_table(
        "what the two promise together (your own beside it: ragcache report --scenarios)",
        ("workload", "prefix hits", "semantic hits", "cost saved"),
        [
            (
                row.name,
                f"{row.prefix_hit_rate:.0%}",
                f"{row.semantic_hit_rate:.0%}",
                f"{row.saved_share:.0%}",
            )
            for row in PUBLISHED
        ],
    )
