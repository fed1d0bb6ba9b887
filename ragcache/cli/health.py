"""The verb that looks whether all is well: doctor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from .console import print_json, print_table, say
from .options import AsJson, Config, OpsDsn
from .places import database
from .verbs import add

if TYPE_CHECKING:
    from ..store.reports import Finding


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    add(app, doctor, "ragcache doctor")


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
