"""The verb that shows it all: report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .console import print_json, print_table, say
from .options import AnyTenant, AsJson, Config, OpsDsn, span
from .places import database, now_utc, settings_from, threshold_of
from .verbs import add

if TYPE_CHECKING:
    from ..settings import Settings
    from ..telemetry.report import ReportData, Scenario


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    add(app, report, "ragcache report --since 7d --html report.html")


def report(
    html: Annotated[
        Path | None, typer.Option(help="Write one self-contained page with plots to this file.")
    ] = None,
    scenarios: Annotated[
        bool, typer.Option("--scenarios", help="Your traffic beside four published workloads.")
    ] = False,
    since: Annotated[str, typer.Option(help="How far back: 24h, 7d.")] = "7d",
    tenant: AnyTenant = None,
    dsn: OpsDsn = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Report what was saved and what is risked: as a page with plots, or as tables.

    The page needs no network and no script; names of documents are on it, what was asked and
    answered is not.
    """
    from ..telemetry.report import page
    from ..telemetry.report import scenarios as rows_of

    with database(config, dsn) as place:
        data = _gathered(place.ops, settings_from(config), since=since, tenant=tenant)
    if html is not None:
        _write(html, page(data))
        say(f"wrote {html}: {data.whole.requests:,} requests since {since} ago")
        return
    rows = rows_of(data.whole)
    if as_json:
        print_json({"scenarios": [_plain(r) for r in rows]} if scenarios else _whole(data, rows))
    elif scenarios:
        _tell_scenarios(rows)
    else:
        _tell(data)


def _gathered(ops: str, settings: Settings, *, since: str, tenant: str | None) -> ReportData:
    from ..store import reports, traffic
    from ..telemetry.report import gathered

    now = now_utc()
    begin = now - span(since)
    held = reports.stats(ops, now=now, tenant=tenant)
    return gathered(
        title=f"{'tenant ' + tenant if tenant else 'all tenants'}, the last {since}",
        now=now,
        hours=traffic.hours(ops, since=begin, tenant=tenant),
        recent=traffic.recent(ops, since=begin, tenant=tenant, limit=5_000),
        quarantined=[(f"{n.tenant} / {n.namespace}", n.quarantined) for n in held.namespaces],
        threshold=threshold_of(settings),
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the report cannot be written to {path}: {error.strerror}") from error


def _plain(row: Scenario) -> dict[str, Any]:
    return {
        "workload": row.name,
        "prefix_hit_rate": row.prefix_hit_rate,
        "semantic_hit_rate": row.semantic_hit_rate,
        "saved_share": row.saved_share,
        "basis": row.basis,
    }


def _whole(data: ReportData, rows: list[Scenario]) -> dict[str, Any]:
    from ..telemetry import figures

    return {
        "title": data.title,
        "figures": figures.plain(data.whole),
        "hours": {hour: figures.plain(part) for hour, part in data.hours},
        "documents": [
            {"name": d.name, "prompts": d.prompts, "reusable": d.reusable} for d in data.documents
        ],
        "misses": dict(data.misses),
        "lost_prefix": dict(data.lost),
        "quarantined": dict(data.quarantined),
        "threshold": data.threshold,
        "scenarios": [_plain(row) for row in rows],
    }


def _tell_scenarios(rows: list[Scenario]) -> None:
    print_table(
        "beside published workloads",
        ("workload", "prefix hits", "semantic hits", "cost saved", "basis"),
        [
            (
                r.name,
                _share(r.prefix_hit_rate),
                _share(r.semantic_hit_rate),
                _share(r.saved_share),
                r.basis,
            )
            for r in rows
        ],
    )
    say("estimated: saved = s + (1 - s) * p * 0.55, which all four published rows follow")


def _tell(data: ReportData) -> None:
    say(data.title)
    print_table(
        "documents by reuse",
        ("document", "prompts", "behind a known prefix"),
        [(d.name, d.prompts, d.reusable) for d in data.documents],
    )
    print_table("why requests went forward", ("reason", "requests"), list(data.misses))
    print_table("why prefixes were lost", ("cause", "tokens"), list(data.lost))
    print_table("in quarantine", ("where", "entries"), list(data.quarantined))
    say("the figures: ragcache stats; the page with plots: ragcache report --html report.html")


def _share(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:.1%}"
