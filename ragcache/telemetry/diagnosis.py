"""What the last requests say about prefixes, counters, similarity and lifetime. Pure.

Nothing here is a failure of its own: requests were answered. `advice` is what would save more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from ..store.findings import Finding
from .reasons import FORWARD, LOST_PREFIX, explained

Row = Mapping[str, Any]

#: Fewer requests than this show nothing.
ENOUGH = 5
#: Below this share of prompts that begin as an earlier one did, something in front varies.
_ALIKE = 0.5
#: Above this share of all requests a reason is worth a word.
_OFTEN = 0.2
_NOTHING = "too few requests were recorded to tell (telemetry.record keeps them)"


def diagnosed(rows: Sequence[Row], *, threshold: float, ttl_s: float) -> list[Finding]:
    """Return what the last requests show.

    Args:
        rows: Of the requests table, newest first.
        threshold: Similarity from which semantic hits are served.
        ttl_s: Lifetime of an answer, in seconds, where the request names none.
    """
    return [
        prefixes(rows),
        counters(rows),
        similarity(rows, threshold=threshold),
        lifetime(rows, ttl_s=ttl_s),
    ]


# --- prefixes ----------------------------------------------------------------------------------


def prefixes(rows: Sequence[Row]) -> Finding:
    """Whether prompts begin byte for byte as earlier ones did."""
    heads = _heads(rows)
    sent = sum(len(group) for group in heads)
    if sent < ENOUGH:
        return Finding(name="prefixes", ok=True, detail=_NOTHING)
    changes = sum(len(set(group)) - 1 for group in heads)
    alike = 1 - changes / max(1, sent - len(heads))
    detail = f"{alike:.0%} of {sent:,} prompts begin with a system text and tools sent before"
    if alike >= _ALIKE:
        return Finding(name="prefixes", ok=True, detail=detail)
    return Finding(
        name="prefixes",
        ok=True,
        detail=f"{detail}{_where(rows)}",
        advice="something in the system text or the tools changes with every request: find it "
        "with `ragcache lint src` or `ragcache lint --log FILE`, and pass it as `volatile`",
    )


def _heads(rows: Sequence[Row]) -> list[list[str]]:
    """Return the digests of tools and system text of those who could share a prefix."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        if row["head"]:
            place = (row["tenant"], row["namespace"], row["model"], row["version"])
            groups.setdefault(place, []).append(row["head"])
    return list(groups.values())


def _where(rows: Sequence[Row]) -> str:
    """Return where the layout saw two prompts part, the latest first."""
    notes = (note for row in rows for note in row["notes"] if "first difference" in note)
    note = next(notes, "")
    return f"; {note}" if note else ""


# --- what the target served --------------------------------------------------------------------


def counters(rows: Sequence[Row]) -> Finding:
    """What the target says it served from its own prefix cache."""
    calls = [row for row in rows if "target" in row["seconds"] and not row["error"]]
    if len(calls) < ENOUGH:
        return Finding(name="counters", ok=True, detail=_NOTHING)
    told = [row for row in calls if row["cached"] is not None and row["input"]]
    if not told:
        return Finding(
            name="counters",
            ok=True,
            detail=f"none of {len(calls):,} calls reports cached tokens",
            advice="on vLLM start the server with --enable-prompt-tokens-details; at a provider "
            "look whether the model has a prompt cache, and ask for usage in streams",
        )
    served = sum(row["cached"] for row in told) / sum(row["input"] for row in told)
    detail = f"{served:.0%} of the tokens of {len(told):,} calls came from the target's own cache"
    cause, lost = _top_cause(told)
    if not lost:
        return Finding(name="counters", ok=True, detail=detail)
    detail = f"{detail}; {lost:,} more were predicted"
    return Finding(
        name="counters", ok=True, detail=detail, advice=explained(cause, dict(LOST_PREFIX))
    )


def _top_cause(told: Iterable[Row]) -> tuple[str, int]:
    from .figures import causes_of_lost_prefix

    return next(iter(causes_of_lost_prefix(told)), ("", 0))


# --- the answer cache --------------------------------------------------------------------------


def similarity(rows: Sequence[Row], *, threshold: float) -> Finding:
    """How near the nearest stored questions came, and what kept them from being served."""
    detail = f"semantic hits are served from {threshold:g}"
    if len(rows) < ENOUGH:
        return Finding(name="similarity", ok=True, detail=f"{detail}; {_NOTHING}")
    hits = sum(row["status"] == "hit_semantic" for row in rows)
    detail = f"{detail}; {hits / len(rows):.0%} of {len(rows):,} requests were semantic hits"
    reasons = Counter(row["reason"] for row in rows if not row["status"].startswith("hit"))
    for reason in ("guard_off", "bad_vector", "no_embedder"):
        if reasons[reason] >= _OFTEN * len(rows):
            advice = explained(reason, dict(FORWARD))
            return Finding(name="similarity", ok=True, detail=detail, advice=advice)
    near = [row["nearest"] for row in rows if row["reason"] == "below_threshold" and row["nearest"]]
    if len(near) < max(ENOUGH, _OFTEN * len(rows)):
        return Finding(name="similarity", ok=True, detail=detail)
    return Finding(
        name="similarity",
        ok=True,
        detail=f"{detail}; {len(near):,} were under the threshold, half of them over "
        f"{median(near):.3f}",
        advice="`ragcache calibrate` finds the threshold for your embedder and your questions",
    )


def lifetime(rows: Sequence[Row], *, ttl_s: float) -> Finding:
    """Whether answers go before they are asked for again."""
    detail = f"an answer lives {_told(ttl_s)}"
    expired = sum(row["reason"] == "expired" for row in rows)
    if len(rows) < ENOUGH or expired < _OFTEN * len(rows):
        return Finding(name="lifetime", ok=True, detail=detail)
    return Finding(
        name="lifetime",
        ok=True,
        detail=f"{detail}; {expired:,} of {len(rows):,} requests came after it",
        advice="a longer admission.ttl_s, where answers stay true: documents that change are "
        "announced with `documents.changed`, not waited out",
    )


def _told(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"
