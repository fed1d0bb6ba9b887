"""The verbs that look at the store: doctor, stats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from .console import print_json, print_table, say
from .options import AnyTenant, AsJson, Config, OpsDsn
from .places import database, now_utc
from .verbs import add

if TYPE_CHECKING:
    from ..store.reports import Finding, Stats

_COLUMNS = (
    "tenant",
    "namespace",
    "entries",
    "live",
    "quarantined",
    "deleted",
    "expired",
    "hits",
    "bytes",
)


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    add(app, doctor, "ragcache doctor")
    add(app, stats, "ragcache stats --tenant acme --json")


def doctor(dsn: OpsDsn = None, config: Config = None, as_json: AsJson = False) -> None:
    """Check everything that serving needs; exit with 3 where something is wrong."""
    import asyncio

    from ..store import reports

    with database(config, dsn) as place:
        findings = asyncio.run(reports.doctor(place.app or place.ops, place.ops))
    _tell(findings, as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(3)


def _tell(findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        print_json({"findings": [asdict(f) for f in findings], "ok": all(f.ok for f in findings)})
        return
    rows = [("ok" if f.ok else "FAIL", f.name, f.detail) for f in findings]
    print_table("doctor", ("", "check", "finding"), rows)
    first = next((f for f in findings if not f.ok), None)
    say("all is well" if first is None else f"first: {first.detail}")


def stats(
    tenant: AnyTenant = None, dsn: OpsDsn = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Show what the store holds, for each tenant and namespace."""
    from ..store.reports import stats as read

    with database(config, dsn) as place:
        found = read(place.ops, now=now_utc(), tenant=tenant)
    if as_json:
        print_json(_plain(found))
        return
    print_table("entries", _COLUMNS, [asdict(row) for row in found.namespaces])
    if found.embedders:
        print_table("vectors", ("embedder", "vectors"), list(found.embedders.items()))


def _plain(found: Stats) -> dict[str, object]:
    return {
        "namespaces": [asdict(row) for row in found.namespaces],
        "embedders": dict(found.embedders),
    }
