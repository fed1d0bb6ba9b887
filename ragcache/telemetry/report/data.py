"""What the report shows, from what was recorded. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from .. import figures
from ..figures import Figures
from .svg import Bin, Node

Row = Mapping[str, Any]

_BINS = 25
_LOWEST = 0.5
_CHILDREN = 12
_DOCUMENTS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """A document: in how many prompts it stood, and in how many behind a prefix seen before."""

    name: str
    prompts: int
    reusable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """All that the page shows.

    Args:
        title: Whose traffic, and since when.
        made_at: When it was read.
        whole: Sums over all requests.
        groups: Sums by (what, value): tenant, model, version.
        hours: Sums of each hour, oldest first.
        bins: Nearest similarities: served, not served, served and bad.
        threshold: Where semantic hits begin.
        tree: Blocks of the latest prompts, as a tree.
        documents: The most frequent ones first.
        misses, lost: Reasons and causes, the most frequent first.
        quarantined: Entries in quarantine, by tenant and namespace.
    """

    title: str
    made_at: datetime
    whole: Figures
    groups: Mapping[tuple[str, str], Figures]
    hours: Sequence[tuple[str, Figures]]
    bins: Sequence[Bin]
    threshold: float | None
    tree: Node
    documents: Sequence[Reused]
    misses: Sequence[tuple[str, int]]
    lost: Sequence[tuple[str, int]]
    quarantined: Sequence[tuple[str, int]]


def gathered(
    *,
    title: str,
    now: datetime,
    hours: Sequence[Row],
    recent: Sequence[Row],
    quarantined: Iterable[tuple[str, int]] = (),
    threshold: float | None = None,
) -> ReportData:
    """Return what the page shows.

    Args:
        title: Whose traffic, and since when.
        now: The moment of the report.
        hours: Rows of the hours table.
        recent: The latest requests, newest first.
        quarantined: Entries in quarantine.
        threshold: Where semantic hits begin.
    """
    by_hour = figures.grouped(hours, lambda row: str(row["hour"])[:13])
    groups = {
        (what, name): part
        for what in ("tenant", "model", "version")
        for name, part in figures.grouped(hours, itemgetter(what)).items()
        if name
    }
    return ReportData(
        title=title,
        made_at=now,
        whole=figures.total(hours),
        groups=groups,
        hours=[(hour.replace("T", " ") + "h", by_hour[hour]) for hour in sorted(by_hour)],
        bins=similarity_bins(recent),
        threshold=threshold,
        tree=prefix_tree(recent),
        documents=documents_by_reuse(recent),
        misses=figures.causes_of_misses(recent)[:10],
        lost=figures.causes_of_lost_prefix(recent)[:10],
        quarantined=[pair for pair in quarantined if pair[1]],
    )


def similarity_bins(recent: Iterable[Row]) -> list[Bin]:
    """Count nearest similarities: not served, served, served and found bad."""
    counts = [[0, 0, 0] for _ in range(_BINS)]
    for row in recent:
        if row["nearest"] is None or row["status"] == "hit_exact":
            continue
        place = int((row["nearest"] - _LOWEST) / (1 - _LOWEST) * _BINS)
        served = row["status"] == "hit_semantic"
        bad = served and row["agreed"] is False
        counts[min(max(place, 0), _BINS - 1)][2 if bad else int(served)] += 1
    width = (1 - _LOWEST) / _BINS
    return [
        Bin(
            low=_LOWEST + at * width,
            high=_LOWEST + (at + 1) * width,
            parts=(("bad", bad), ("good", served), ("muted", missed)),
        )
        for at, (missed, served, bad) in enumerate(counts)
    ]


# --- the tree ----------------------------------------------------------------------------------


def prefix_tree(recent: Iterable[Row]) -> Node:
    """Return the tree of block sequences, each node with the tokens that went through it.

    Tokens are a quarter of the characters. Beyond the widest children the rest is one node.
    """
    sequences = [[tuple(block) for block in row["blocks"]] for row in recent if row["blocks"]]
    return _pruned(Node(name="all prompts", tokens=1.0, children=_children(sequences)))


def _children(sequences: Sequence[Sequence[tuple[Any, ...]]], level: int = 0) -> list[Node]:
    following: dict[tuple[Any, ...], list[Sequence[tuple[Any, ...]]]] = {}
    for sequence in sequences:
        if level < len(sequence):
            following.setdefault(sequence[level], []).append(sequence)
    if level > 8:
        return []
    return [
        Node(
            name=str(block[2] or block[0]),
            tokens=sum(_tokens(s[level:]) for s in some),
            children=_children(some, level + 1),
        )
        for block, some in following.items()
    ]


def _tokens(blocks: Sequence[tuple[Any, ...]]) -> float:
    return sum(float(block[1]) for block in blocks) / 4


def _pruned(node: Node) -> Node:
    ranked = sorted(node.children, key=lambda child: -child.tokens)
    kept, rest = ranked[:_CHILDREN], ranked[_CHILDREN:]
    if rest:
        name = f"{len(rest)} others"
        kept.append(Node(name=name, tokens=sum(child.tokens for child in rest)))
    tokens = max(node.tokens, sum(child.tokens for child in kept))
    return replace(node, tokens=tokens, children=[_pruned(child) for child in kept])


def documents_by_reuse(recent: Iterable[Row]) -> list[Reused]:
    """Return documents by how many prompts they stood in, and how often behind a known prefix."""
    seen: set[tuple[str, ...]] = set()
    prompts: dict[str, int] = {}
    reusable: dict[str, int] = {}
    for row in reversed(list(recent)):
        path: tuple[str, ...] = ()
        for block in row["blocks"]:
            name = str(block[2] or block[0])
            path = (*path, str(block[0]))
            prompts[name] = prompts.get(name, 0) + 1
            reusable[name] = reusable.get(name, 0) + (path in seen)
            seen.add(path)
    ranked = sorted(prompts, key=lambda name: (-prompts[name], name))[:_DOCUMENTS]
    return [Reused(name=n, prompts=prompts[n], reusable=reusable[n]) for n in ranked]
