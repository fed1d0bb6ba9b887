"""The verbs of stored entries: inspect, purge, promote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import StoreError
from .console import print_json, print_table, say
from .options import AnyTenant, AsJson, Config, OpsDsn, Reason, Tenant, Yes, moment
from .places import database, now_utc
from .taking import Taken, Where, take
from .taking import promote as put_into_service
from .verbs import add

if TYPE_CHECKING:
    from ..store.selection import Purged

_COLUMNS = ("id", "question", "state", "namespace", "model", "created_at", "expire_at", "hits")


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    add(app, inspect, "ragcache inspect --tenant acme 6f1c")
    add(app, purge, "ragcache purge --tenant acme --document fees.pdf --dry-run")
    add(app, promote, "ragcache promote --tenant acme 6f1c --reason reviewed")


# --- inspect -----------------------------------------------------------------------------------


def inspect(
    tenant: Tenant,
    entry: Annotated[
        str | None, typer.Argument(help="An entry's id; the newest entries where none is given.")
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Show what was taken out of service, and why.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many rows.")] = 20,
    dsn: OpsDsn = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show an entry with its answer and lineage, the newest entries, or the audit."""
    from ..store import reports

    with database(config, dsn) as place:
        if audit:
            _listed("audit", reports.audit(place.ops, tenant, limit=limit), as_json)
        elif entry is None:
            _listed("entries", reports.entries(place.ops, tenant, limit=limit), as_json)
        else:
            _inspected(reports.inspect(place.ops, tenant, entry), tenant, entry, as_json)


def _listed(title: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    rows = [{("hits" if k == "coalesce" else k): v for k, v in row.items()} for row in rows]
    if as_json:
        print_json({title: rows})
        return
    columns = _COLUMNS if title == "entries" else tuple(rows[0]) if rows else ()
    print_table(f"{len(rows)} {title}", columns, rows)


def _inspected(found: Mapping[str, Any] | None, tenant: str, entry: str, as_json: bool) -> None:
    if found is None:
        raise StoreError(
            f"there is no entry {entry} of tenant {tenant}: `ragcache inspect --tenant {tenant}` "
            "lists the newest"
        )
    if as_json:
        print_json(found)
        return
    plain = {k: v for k, v in found.items() if not isinstance(v, list | dict)}
    print_table(f"entry {entry}", ("what", "value"), list(plain.items()))
    say(f"answer: {found['answer'].get('text', '')}")
    changed = {n["name"] for n in found["names"] if n["stored"] != n["now"]}
    rows = [
        {
            "document": ", ".join(row["names"]) or row["content"][:12],
            "rank": row["rank"],
            "cited": row["cited"],
            "unchanged": not changed & set(row["names"]),
        }
        for row in found["lineage"]
    ]
    print_table("came from", ("document", "rank", "cited", "unchanged"), rows)


# --- purge -------------------------------------------------------------------------------------


def _criterion(text: str) -> Any:
    return typer.Option(help=text, show_default=False)


Text = str | None


def purge(
    *,
    tenant: AnyTenant = None,
    namespace: Annotated[Text, _criterion("Entries of this namespace.")] = None,
    model: Annotated[Text, _criterion("Answers of this model.")] = None,
    version: Annotated[Text, _criterion("Answers of this prompt version.")] = None,
    embedder: Annotated[Text, _criterion("Vectors of this embedder.")] = None,
    document: Annotated[Text, _criterion("Answers from this document (id or source).")] = None,
    writer: Annotated[Text, _criterion("Answers stored for this principal.")] = None,
    entry: Annotated[Text, _criterion("This entry.")] = None,
    older_than: Annotated[Text, _criterion("Stored before: 30d, 12h, or a date.")] = None,
    principal: Annotated[Text, _criterion("Erase this person for good, in every table.")] = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="Erase the tenant for good, in every table.")
    ] = False,
    hard: Annotated[bool, typer.Option("--hard", help="Remove at once, beyond restoring.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only.")] = False,
    yes: Yes = False,
    reason: Reason = "",
    dsn: OpsDsn = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Take entries out of service: those for which every criterion given holds.

    The count is shown first, and you are asked. What was purged can be restored until
    maintenance removes it; in Redis it is gone.
    """
    from ..store.selection import Selection

    selection = Selection(
        tenant=tenant,
        namespace=namespace,
        model=model,
        version=version,
        embedder=embedder,
        document=document,
        writer=writer,
        entry=entry,
        older_than=moment(older_than, now=now_utc()) if older_than else None,
    )
    what = Taken(selection=selection, principal=principal, erase=erase, hard=hard, reason=reason)
    _refuse_mixture(what)
    where = Where(config=config, dsn=dsn)
    would = take(where, what, dry_run=True)
    if dry_run or not (would.total or erase or principal):
        _tell(would, as_json)
        return
    if not as_json:
        _tell(would, as_json=False)
    _ask(would, yes, for_good=hard or erase or principal is not None or where.in_redis_alone)
    _tell(take(where, what, dry_run=False), as_json)


def _refuse_mixture(what: Taken) -> None:
    """A wrong word on the command line must not widen what is removed."""
    selection = what.selection
    whole = selection.tenant is not None and not selection.criteria()
    if what.erase and (not whole or what.principal is not None):
        raise typer.BadParameter("--erase goes with --tenant and no other criterion")
    if what.principal is not None and not whole:
        raise typer.BadParameter("--principal goes with --tenant and no other criterion")
    if selection.tenant is None and not selection.criteria():
        raise typer.BadParameter("say what to purge: --tenant, --document, --older-than, ...")


def _tell(purged: Purged, as_json: bool) -> None:
    if as_json:
        print_json({"entries": purged.entries, "total": purged.total, "dry_run": purged.dry_run})
        return
    what = "would be purged" if purged.dry_run else "purged"
    if purged.entries:
        print_table(what, ("tenant", "entries"), list(purged.entries.items()))
    say(f"{purged.total} entries {what}")


def _ask(would: Purged, yes: bool, *, for_good: bool) -> None:
    if yes:
        return
    beyond = " for good" if for_good else ""
    typer.confirm(f"Purge {would.total} entries{beyond}?", abort=True, err=True)


# --- promote -----------------------------------------------------------------------------------


def promote(
    tenant: Tenant,
    entry: Annotated[str, typer.Argument(help="The quarantined entry's id.")],
    reason: Reason = "",
    dsn: OpsDsn = None,
    config: Config = None,
) -> None:
    """Put a quarantined entry into service, after you have looked at it."""
    promoted = put_into_service(Where(config=config, dsn=dsn), tenant, entry, reason)
    if not promoted:
        raise StoreError(
            f"tenant {tenant} has no entry {entry} in quarantine: "
            f"`ragcache inspect --tenant {tenant} {entry}` shows its state"
        )
    say(f"entry {entry} is in service")
