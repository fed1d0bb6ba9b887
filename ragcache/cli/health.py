"""The verb that looks whether all is well: doctor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError, StoreError
from .console import print_json, print_table, say
from .options import AsJson, Config, OpsDsn
from .places import Place, database, now_utc, settings_from, threshold_of
from .verbs import add

if TYPE_CHECKING:
    from ..settings import Settings
    from ..store.findings import Finding

#: In this order a colleague would look: what is wrong early makes what comes later look wrong.
_ORDER = (
    "target",
    "model",
    "prefixes",
    "engine",
    "advice",
    "counters",
    "similarity",
    "lifetime",
    "store",
    "isolation",
    "ops",
    "redis",
    "vectors",
    "eviction",
    "schema",
    "extension",
    "index",
    "clock",
    "block size",
)
#: Of each tenant, the latest requests are looked at.
_LOOKED_AT = 500
_LOOKED_BACK = timedelta(days=7)


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
    """Check everything that serving needs, in the order in which to mend it.

    Base URL, key and model; whether the last prompts begin alike; what the engine or the provider
    served from its own cache; similarity and lifetime; roles and row security; schema, extension
    and indexes; clock; block size. Ends with what to do first; exits with 3 where something is
    wrong.
    """
    from .target_health import look

    settings = settings_from(config)
    findings = look(settings) if target else [*_target(settings), *_store(settings, config, dsn)]
    _tell(sorted(findings, key=lambda finding: _ORDER.index(finding.name)), as_json)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(3)


def _target(settings: Settings) -> Sequence[Finding]:
    from ..store.findings import Finding
    from .target_health import look, servers

    if servers(settings.api):
        return look(settings)
    detail = (
        "no server is named (api.base_url): the chain's own model is asked; name it to have the "
        "model's side looked at"
    )
    return [Finding(name="target", ok=True, detail=detail)]


def _store(settings: Settings, config: Path | None, dsn: str | None) -> Iterator[Finding]:
    import asyncio

    store = settings.store
    if "postgres" in store.kind:
        yield from _postgres(settings, config, dsn)
    if "redis" in store.kind:
        from ..store.redis.health import doctor as look

        redis_dsn = (store.redis_dsn or store.dsn).get_secret_value()
        yield from asyncio.run(look(redis_dsn, cluster=store.redis_cluster))


def _postgres(settings: Settings, config: Path | None, dsn: str | None) -> Sequence[Finding]:
    """Look as the ops role; as the app role alone where nobody said how ops reaches it."""
    from ..store.findings import Finding

    given = settings.store.dsn.get_secret_value()
    if given and not (dsn or settings.store.ops_dsn.get_secret_value()):
        return _looked_at(Place(app=given, ops=""), settings)
    try:
        with database(config, dsn) as place:
            return _looked_at(place, settings)
    except (StoreError, ConfigError) as error:  # an embedded Postgres that does not start
        return [Finding(name="store", ok=False, detail=str(error))]


def _looked_at(place: Place, settings: Settings) -> Sequence[Finding]:
    import asyncio

    from ..store import health, reports

    found = list(asyncio.run(reports.doctor(place.app or place.ops, place.ops or None)))
    if not place.ops or not all(finding.ok for finding in found):
        return found
    found += health.looked_at(place.ops, index_at=settings.store.index_at)
    return found + _recorded(place.ops, settings)


def _recorded(ops: str, settings: Settings) -> list[Finding]:
    from ..admission import AdmissionPolicy
    from ..store import traffic
    from ..telemetry.diagnosis import diagnosed

    rows = traffic.recent(ops, since=now_utc() - _LOOKED_BACK, limit=_LOOKED_AT)
    ttl_s = float(settings.admission.get("ttl_s", AdmissionPolicy().ttl_s))
    return diagnosed(rows, threshold=threshold_of(settings), ttl_s=ttl_s)


def _tell(findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        print_json({"findings": [asdict(f) for f in findings], "ok": all(f.ok for f in findings)})
        return
    print_table(
        "doctor",
        ("", "check", "finding"),
        [(_mark(finding), finding.name, _sentence(finding)) for finding in findings],
    )
    say(_first(findings))


def _mark(finding: Finding) -> str:
    if not finding.ok:
        return "FAIL"
    return "look" if finding.advice else "ok"


def _sentence(finding: Finding) -> str:
    return f"{finding.detail}. {finding.advice}" if finding.advice else finding.detail


def _first(findings: Sequence[Finding]) -> str:
    """Return what to do first: mend what is wrong, then what could be better."""
    wrong = next((f for f in findings if not f.ok), None)
    if wrong is not None:
        return f"first: {wrong.detail}"
    better = next((f for f in findings if f.advice), None)
    return "all is well" if better is None else f"all is sound; first: {better.advice}"
