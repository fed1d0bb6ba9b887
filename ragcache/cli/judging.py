"""The verb of those who say what was wrong: feedback."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from .console import say
from .options import AnyTenant, Config, OpsDsn, Reason
from .places import database, now_utc
from .verbs import add

if TYPE_CHECKING:
    from ..store.traffic import Verdict


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    add(app, feedback, "ragcache feedback 6f1c --bad --reason 'answers another question'")


def feedback(
    request_id: Annotated[str, typer.Argument(help="The request's id, or how it begins.")],
    bad: Annotated[
        bool, typer.Option("--bad/--good", help="What the asker said of the answer.")
    ] = True,
    tenant: AnyTenant = None,
    reason: Reason = "",
    dsn: OpsDsn = None,
    config: Config = None,
) -> None:
    """Note what an asker said of an answer; a bad one is taken out of service.

    The saving of a bad hit is taken back, and the guard counts it: running processes hear of it
    within a minute. What was purged can be restored until maintenance removes it.
    """
    from ..store import traffic
    from ..store.purging import Selection, purge

    with database(config, dsn) as place:
        row = _one(traffic.find(place.ops, request_id, tenant=tenant), request_id)
        entry = row["entry"]
        writer = traffic.TrafficWriter(place.ops)
        try:
            writer.write(row["tenant"], (), [_verdict(row, agreed=not bad)])
        finally:
            writer.close()
        _tell_guard(place.ops, row, agreed=not bad)
        if bad and entry:
            chosen = Selection(tenant=row["tenant"], entry=entry)
            purge(place.ops, chosen, reason=f"bad hit: {reason}" if reason else "bad hit")
    if bad and entry:
        say(f"entry {entry} is out of service, and what its hit had saved is taken back")
    else:
        say("noted")


def _tell_guard(ops: str, row: Mapping[str, Any], *, agreed: bool) -> None:
    """Leave the verdict on a semantic hit for the processes that hold the error rate."""
    from ..pipeline.guarding import DEPLOYMENT, Told, path_to, told_key
    from ..store.inbox import append

    if row["status"] != "hit_semantic" or row["similarity"] is None:
        return
    path = path_to(row["namespace"], row["partition"])
    told = Told(path=path, similarity=row["similarity"], agreed=agreed)
    until = now_utc() + timedelta(days=365)
    append(ops, DEPLOYMENT, "guard", told_key("default"), told.as_json(), expire_at=until)


def _one(found: list[dict[str, Any]], request_id: str) -> dict[str, Any]:
    found = [row for row in found if row["id"] == request_id] or found
    if len({row["id"] for row in found}) != 1:
        kept = "no request" if not found else "more than one request"
        raise ConfigError(f"{kept} {request_id} is kept: `ragcache stats` tells what is recorded")
    return found[0]


def _verdict(row: Mapping[str, Any], *, agreed: bool) -> Verdict:
    from ..store.traffic import Verdict

    return Verdict(
        id=row["id"],
        entry=row["entry"],
        agreed=agreed,
        by="feedback",
        at=datetime.fromisoformat(row["at"]),
        namespace=row["namespace"],
        model=row["model"],
        version=row["version"],
    )
