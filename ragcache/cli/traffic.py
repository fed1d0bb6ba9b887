"""The verbs of what was recorded: stats, why."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import ConfigError
from .console import out, print_json, say, table
from .options import AnyTenant, AsJson, Config, OpsDsn, span
from .places import database, now_utc
from .verbs import add

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..telemetry.figures import Figures

_ENTRIES = ("tenant", "namespace", "live", "quarantined", "deleted", "expired", "hits", "bytes")
_FIGURES = (
    "",
    "requests",
    "exact hits",
    "semantic hits",
    "prefix hits",
    "bad hits",
    "first token",
    "saved",
)
By = Literal["tenant", "namespace", "model", "version"]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    add(app, stats, "ragcache stats --tenant acme --since 24h --json")
    add(app, why, "ragcache why 6f1c")


# --- stats -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What was read for one view."""

    whole: Figures
    groups: Mapping[str, Figures]
    entries: list[dict[str, Any]]
    embedders: Mapping[str, int]
    misses: list[tuple[str, int]]
    lost: list[tuple[str, int]]


def stats(
    tenant: AnyTenant = None,
    since: Annotated[str, typer.Option(help="How far back: 90s, 15m, 24h, 7d.")] = "24h",
    by: Annotated[By, typer.Option(help="One row for each.")] = "tenant",
    watch: Annotated[bool, typer.Option("--watch", help="Look again until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
    dsn: OpsDsn = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the four figures and their reasons, and what the store holds.

    Exact and semantic hits are shares of all requests; prefix hits the share of input tokens that
    the target served from its own cache; bad hits the verified ones found wrong, with the upper
    bounds of the true rate, of hits and of all requests. First token: what an asker waits less on
    a hit.
    """
    with database(config, dsn) as place:
        if watch and not as_json:
            _watch(place.ops, tenant, since, by, every)
            return
        looked = _look(place.ops, tenant, since, by)
    if as_json:
        print_json(_plain(looked, since))
    else:
        out.print(_view(looked, by))


def _look(ops: str, tenant: str | None, since: str, by: By) -> _Looked:
    from ..store import reports, traffic
    from ..telemetry import figures

    now = now_utc()
    begin = now - span(since)
    hours = traffic.hours(ops, since=_hour(begin), tenant=tenant)
    recent = traffic.recent(ops, since=begin, tenant=tenant)
    held = reports.stats(ops, now=now, tenant=tenant)
    return _Looked(
        whole=figures.total(hours),
        groups=figures.grouped(hours, lambda row: row[by] or "-"),
        entries=[asdict(row) for row in held.namespaces],
        embedders=held.embedders,
        misses=figures.causes_of_misses(recent),
        lost=figures.causes_of_lost_prefix(recent),
    )


def _hour(moment: datetime) -> datetime:
    """Sums are of whole hours: the one that a span begins in counts."""
    return moment.replace(minute=0, second=0, microsecond=0)


def _plain(looked: _Looked, since: str) -> dict[str, Any]:
    from ..telemetry import figures

    return {
        "since": since,
        "figures": figures.plain(looked.whole),
        "groups": {name: figures.plain(part) for name, part in looked.groups.items()},
        "misses": dict(looked.misses),
        "lost_prefix": dict(looked.lost),
        "namespaces": looked.entries,
        "embedders": dict(looked.embedders),
    }


def _watch(ops: str, tenant: str | None, since: str, by: By, every_s: float) -> None:
    from rich.live import Live

    with Live(_view(_look(ops, tenant, since, by), by), console=out, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            live.update(_view(_look(ops, tenant, since, by), by), refresh=True)


def _view(looked: _Looked, by: By) -> RenderableType:
    from rich.console import Group

    rows = [_row(name, part) for name, part in looked.groups.items()]
    if len(rows) != 1:
        rows.append(_row("all", looked.whole))
    parts: list[RenderableType] = [table("traffic", (by, *_FIGURES[1:]), rows)]
    if looked.misses:
        parts.append(table("why requests went forward", ("reason", "requests"), looked.misses[:8]))
    if looked.lost:
        parts.append(table("why prefixes were lost", ("cause", "tokens"), looked.lost[:8]))
    parts.append(table("entries", _ENTRIES, looked.entries))
    if looked.embedders:
        vectors = list(looked.embedders.items())
        parts.append(table("vectors", ("embedder", "vectors"), vectors))
    return Group(*parts)


def _row(name: str, part: Figures) -> tuple[Any, ...]:
    return (
        name,
        part.requests,
        _share(part.hits_exact / part.requests if part.requests else None),
        _share(part.semantic_hit_rate),
        _share(part.prefix_hit_rate),
        _bad(part),
        "-" if part.ttft_saved_s is None else f"{-part.ttft_saved_s:+.2f} s",
        _saved(part),
    )


def _share(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1%}"


def _bad(part: Figures) -> str:
    told = f", {part.reported} reported" if part.reported else ""
    if not part.judged:
        return f"none judged{told}"
    bounds = f"at most {part.bad_hit_bound:.1%} of hits, {part.bad_of_all_bound:.2%} of all"
    certified = "certified" if part.certified else "not certified"
    return f"{part.wrong} of {part.judged}, {bounds}, {certified}{told}"


def _saved(part: Figures) -> str:
    if not part.priced:
        tokens = part.saved_input + part.saved_output + part.cached
        return f"{tokens:,} tokens" if tokens else "-"
    return f"${part.saved:,.4f} ({_share(part.saved_share)})"


# --- why ---------------------------------------------------------------------------------------


def why(
    request_id: Annotated[str, typer.Argument(help="A request's id, or how it begins.")],
    tenant: AnyTenant = None,
    dsn: OpsDsn = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Tell the story of one request: what was looked up, why it hit or not, what it cost.

    The id is on the answer (`answer.request_id`). What was asked is shown only where
    `telemetry.contents` is on.
    """
    from ..store import traffic
    from ..telemetry.story import story

    with database(config, dsn) as place:
        found = traffic.find(place.ops, request_id, tenant=tenant)
    exact = [row for row in found if row["id"] == request_id]
    found = exact or found
    if not found:
        raise ConfigError(
            f"no request {request_id} is kept: the latest {_kept()} of each tenant are, while "
            "telemetry.record is on; they are written once a second"
        )
    if len({row["id"] for row in found}) > 1:
        ids = ", ".join(sorted({row["id"] for row in found}))
        raise ConfigError(f"more than one request begins with {request_id}: {ids}")
    row = found[0]
    if as_json:
        print_json({"request": row, "story": story(row)})
        return
    for sentence in story(row):
        say(sentence)


def _kept() -> str:
    from ..settings import TelemetrySettings

    return f"{TelemetrySettings().keep:,}"
