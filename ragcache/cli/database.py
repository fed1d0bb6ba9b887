"""The verbs of the database itself: init, migrate, maintain, watch, reembed."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, LiteralString, cast

import typer

from ..errors import ConfigError
from .console import bar, note, print_json, say
from .options import AnyTenant, AsJson, Config, OpsDsn, span
from .places import (
    DEFAULT_CONFIG,
    administrator,
    database,
    embedded,
    now_utc,
    settings_from,
)
from .verbs import add

if TYPE_CHECKING:
    from ..store.migrations import Migration
    from ..store.roles import Dsns

AdminDsn = Annotated[
    str | None,
    typer.Option(
        "--dsn",
        envvar="RAGCACHE_ADMIN_DSN",
        help="Postgres as a role that may create roles; an embedded Postgres where none is given.",
        show_default=False,
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    add(app, init, "ragcache init --dsn postgresql://postgres@db.internal/rag")
    add(app, migrate, "ragcache migrate --check")
    add(app, maintain, "ragcache maintain --quota 100000")
    add(app, watch, "ragcache watch public.documents --tenant-column tenant_id")
    add(app, reembed, "ragcache reembed --tenant acme")


# --- init --------------------------------------------------------------------------------------


def init(
    dsn: AdminDsn = None,
    config: Config = None,
    write: Annotated[
        Path, typer.Option(help="Where the roles' DSNs are written, readable by you alone.")
    ] = DEFAULT_CONFIG,
    as_json: AsJson = False,
) -> None:
    """Make roles, schema and tables in a Postgres of yours, or in an embedded one."""
    if dsn is None:
        _init_embedded(config, as_json)
    else:
        _init_given(dsn, config, write, as_json)


def _init_embedded(config: Path | None, as_json: bool) -> None:
    settings = settings_from(config)
    if settings.store.dsn.get_secret_value():
        raise ConfigError(
            "the settings name a database (store.dsn): pass --dsn with a role there that may "
            "create roles, or take store.dsn out to use an embedded Postgres"
        )
    with embedded(settings.store.home) as place:
        if as_json:
            print_json({"kind": "embedded", "home": place.home})
            return
        say(f"ready: an embedded Postgres in {place.home}, found without any setting")
        say("next: ragcache doctor")


def _init_given(dsn: str, config: Path | None, write: Path, as_json: bool) -> None:
    from ..store.roles import initialise

    known = settings_from(config).store
    app, ops = known.dsn.get_secret_value(), known.ops_dsn.get_secret_value()
    if not (app and ops) and write.exists():
        raise ConfigError(
            f"{write} is there already and does not name store.dsn and store.ops_dsn: pass "
            "--write with another file, and merge the two"
        )
    made = initialise(dsn, app_password=_password(app), ops_password=_password(ops))
    written = None if app and ops else _write(write, made)
    if as_json:
        print_json({"kind": "given", "written": written})
        return
    say("ready: roles, schema and tables are in place")
    if written is None:
        say("the DSNs in the settings go on working")
    else:
        say(f"the DSNs of the app and the ops role are in {written}, readable by you alone")
    say("next: ragcache doctor")


def _password(dsn: str) -> str | None:
    """Return the password that a running application uses already: it must not change."""
    if not dsn:
        return None
    from psycopg.conninfo import conninfo_to_dict

    password = conninfo_to_dict(dsn).get("password")
    return str(password) if password else None


def _write(path: Path, dsns: Dsns) -> Path:
    # A JSON string is a TOML basic string too.
    lines = ("[store]", f"dsn = {json.dumps(dsns.app)}", f"ops_dsn = {json.dumps(dsns.ops)}")
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


# --- migrate -----------------------------------------------------------------------------------


def migrate(
    dsn: OpsDsn = None,
    config: Config = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 3 where something lacks.")
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL of what lacks, to apply it yourself.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the schema to the state this version needs; safe while others serve."""
    from ..store import migrations

    with database(config, dsn) as place:
        lacking = migrations.check(place.ops) if check or sql else migrations.apply(place.ops)
    if sql:
        typer.echo(migrations.sql(lacking) if lacking else "-- nothing to apply")
    else:
        _tell_migrations(lacking, check=check, as_json=as_json)
    if check and lacking:
        raise typer.Exit(3)


def _tell_migrations(steps: Sequence[Migration], *, check: bool, as_json: bool) -> None:
    names = [str(step) for step in steps]
    if as_json:
        print_json({"lacking" if check else "applied": names})
    elif not names:
        say("the schema is up to date")
    elif check:
        say(f"the schema lacks {', '.join(names)}: run `ragcache migrate`")
    else:
        say(f"applied {', '.join(names)}")


# --- maintain ----------------------------------------------------------------------------------


def maintain(
    dsn: OpsDsn = None,
    config: Config = None,
    quota: Annotated[
        int | None, typer.Option(min=0, help="Most entries of a namespace without its own quota.")
    ] = None,
    index_at: Annotated[
        int, typer.Option(min=2, help="Vectors in a partition from which it gets an index.")
    ] = 5_000,
    keep_deleted: Annotated[
        str, typer.Option(help="How long a purged entry can still be restored.")
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    """Remove what can never be served again, keep to quotas, build and drop vector indexes."""
    from ..store.maintenance import maintain as run

    kept = span(keep_deleted)
    with database(config, dsn) as place:
        done = run(
            place.ops,
            now=now_utc(),
            index_at=index_at,
            keep_deleted=kept,
            quota=quota,
            progress=note,
        )
    row = {
        "swept": done.swept,
        "evicted": done.evicted,
        "documents": done.documents,
        "records": done.records,
        "built": list(done.built),
        "dropped": list(done.dropped),
    }
    if as_json:
        print_json(row)
        return
    say(f"{done.swept} entries swept, {done.evicted} evicted, {done.documents} documents forgotten")
    say(f"{done.records} old records of requests removed")
    say(f"{len(done.built)} indexes built, {len(done.dropped)} dropped")


# --- watch -------------------------------------------------------------------------------------


def watch(
    table: Annotated[str, typer.Argument(help="Your document table, with its schema.")],
    tenant_column: Annotated[
        str | None,
        typer.Option(help="Column, or SQL over the row's columns, that gives a row's tenant."),
    ] = None,
    id_column: Annotated[str | None, typer.Option(help="Column with a chunk's id.")] = None,
    text_column: Annotated[str | None, typer.Option(help="Column with a chunk's text.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the triggers off again.")] = False,
    dsn: AdminDsn = None,
    config: Config = None,
) -> None:
    """Invalidate answers in the transaction that changes or deletes a document of yours.

    Tables of langchain-postgres and of llama-index are known; of others name both columns.
    The role needs to own the table and to have run `ragcache init`.
    """
    from ..store import watching

    if not remove and not tenant_column:
        raise typer.BadParameter("say which column gives a row's tenant: --tenant-column")
    if (id_column is None) != (text_column is None):
        raise typer.BadParameter("name both columns: --id-column and --text-column")
    shape = watching.Shape(id=id_column, text=text_column) if id_column and text_column else None
    with administrator(config, dsn) as admin:
        if remove:
            watching.unwatch(admin, table)
            say(f"{table} is no longer watched")
            return
        # The operator's own SQL, as trusted as the DSN they give with it.
        expression = cast(LiteralString, tenant_column)
        name = watching.watch(admin, table, tenant=expression, shape=shape)
    say(f"watching {name}: an update or delete there invalidates in the same transaction")


# --- reembed -----------------------------------------------------------------------------------


def reembed(
    tenant: AnyTenant = None,
    batch: Annotated[int, typer.Option(min=1, help="Questions embedded at a time.")] = 64,
    dsn: OpsDsn = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Give stored questions vectors of the embedder in the settings.

    Until then their entries are found by exact key alone. Stop it at any moment: the next run
    goes on where this one ended.
    """
    from ..store.reembedding import reembed as run
    from .embedding import space_of

    with database(config, dsn) as place, space_of(settings_from(config), place.home) as space:
        with bar("embedding") as progress:
            done = run(
                place.ops,
                space,
                now=now_utc(),
                tenant=tenant,
                batch=batch,
                progress=progress,
            )
        embedder = space.id
    if as_json:
        counts = {"done": done.done, "skipped": done.skipped, "refused": done.refused}
        print_json({"embedder": embedder, **counts})
        return
    say(f"{done.done} questions embedded by {embedder}")
    if done.skipped:
        say(f"{done.skipped} got no sound vector and stay found by exact key alone")
    if done.refused:
        say(
            f"{done.refused} are not signed by security.signing_keys, so that they cannot be served"
        )
