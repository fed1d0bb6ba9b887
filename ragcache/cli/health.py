"""The verb that looks whether all is well: doctor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import print_json, print_table, say
from .options import AsJson, Config, OpsDsn
from .places import database, settings_from
from .verbs import add

if TYPE_CHECKING:
    from ..settings import StoreSettings
    from ..store.findings import Finding


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    add(app, doctor, "ragcache doctor")


def doctor(
    dsn: OpsDsn = None,
    config: Config = None,
    target: Annotated[
        bool,
        typer.Option("--target", help="Only the model's side: KV usage, hit rate, advice."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check everything that serving needs; exit with 3 where something is wrong."""
    settings = settings_from(config)
    if target:
        from .target_health import look

        findings = look(settings)
    else:
        findings = _store(settings.store, config, dsn)
    _tell(findings, as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(3)


def _store(store: StoreSettings, config: Path | None, dsn: str | None) -> list[Finding]:
    import asyncio

    findings = [] if store.kind == "redis" else list(_postgres(config, dsn))
    if "redis" in store.kind:
        from ..store.redis.health import doctor as look

        redis_dsn = (store.redis_dsn or store.dsn).get_secret_value()
        findings += asyncio.run(look(redis_dsn, cluster=store.redis_cluster))
    return findings


def _postgres(config: Path | None, dsn: str | None) -> Sequence[Finding]:
    import asyncio

    from ..store import reports

    with database(config, dsn) as place:
        return asyncio.run(reports.doctor(place.app or place.ops, place.ops))


def _tell(findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        print_json({"findings": [asdict(f) for f in findings], "ok": all(f.ok for f in findings)})
        return
    rows = [("ok" if f.ok else "FAIL", f.name, f.detail) for f in findings]
    print_table("doctor", ("", "check", "finding"), rows)
    first = next((f for f in findings if not f.ok), None)
    say("all is well" if first is None else f"first: {first.detail}")
