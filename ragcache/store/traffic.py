"""What telemetry keeps in Postgres: the latest requests of each tenant, and sums for each hour."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.errors import DataError

from .errors import translated
from .ops import Ops, connected, inside, tenants
from .queries import queries
from .rows import storable

_SQL = queries("traffic")
#: Sums of hours are small: a quarter of a year shows what changed.
KEEP_HOURS = timedelta(days=92)
KEEP_REQUESTS = timedelta(days=30)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A semantic hit that was judged; `verification` is what that cost.

    A judge speaks of an entry that was not served: nothing is bad about that but the cost.
    """

    id: str
    entry: str
    agreed: bool
    by: str
    at: datetime
    namespace: str
    model: str
    version: str
    verification: float = 0.0

    @property
    def was_served(self) -> bool:
        """Whether the entry had been served."""
        return self.by != "judge"


class TrafficWriter:
    """Writes requests as the app role, on a connection of its own that comes back after a fault.

    Args:
        app_dsn: The app role's.
        keep: Requests kept for each tenant.
    """

    def __init__(self, app_dsn: str, *, keep: int = 10_000) -> None:
        self._dsn = app_dsn
        self._keep = keep
        self._connection: Ops | None = None
        self._since_trim: dict[str, int] = {}

    def write(self, tenant: str, rows: Sequence[Row], verdicts: Sequence[Verdict] = ()) -> int:
        """Write what happened in one tenant; return how many rows the database refused.

        Raises:
            StoreUnavailableError: The database cannot be reached.
            MigrationError: The schema is behind.
        """
        with translated():
            refused = self._write_rows(tenant, rows) if rows else 0
            for verdict in verdicts:
                self._judge(tenant, verdict)
            self._trim(tenant, len(rows))
        return refused

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Ops:
        if self._connection is None or self._connection.broken or self._connection.closed:
            self._connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=2,
                application_name="ragcache-telemetry",
                tcp_user_timeout=5000,
            )
        return self._connection

    def _write_rows(self, tenant: str, rows: Sequence[Row]) -> int:
        try:
            self._insert(tenant, rows)
        except DataError:
            if len(rows) == 1:
                return 1
            # One row that Postgres cannot hold must not cost the others.
            return sum(self._write_rows(tenant, [row]) for row in rows)
        return 0

    def _insert(self, tenant: str, rows: Sequence[Row]) -> None:
        values = {"tenant": storable(tenant), "rows": json.dumps(rows, default=_plain)}
        with inside(self._connected(), tenant) as connection:
            connection.execute("SELECT set_config('synchronous_commit', 'off', true)")
            connection.execute(_SQL["ensure_namespaces"], values)
            connection.execute(_SQL["write_requests"], values)

    def _judge(self, tenant: str, verdict: Verdict) -> None:
        asked = {
            "tenant": storable(tenant),
            "id": verdict.id,
            "entry": verdict.entry,
            "agreed": verdict.agreed,
            "by": verdict.by,
        }
        with inside(self._connected(), tenant) as connection:
            found = None
            if verdict.was_served:
                found = connection.execute(_SQL["judge_request"], asked).fetchone()
            values = _hour_of(verdict, found) | {"tenant": storable(tenant)}
            connection.execute(_SQL["judge_hour"], values)

    def _trim(self, tenant: str, written: int) -> None:
        """Now and then: looking for the oldest costs more than a few rows too many."""
        since = self._since_trim.get(tenant, 0) + written
        self._since_trim[tenant] = since % max(1, self._keep // 10)
        if since < max(1, self._keep // 10):
            return
        with inside(self._connected(), tenant) as connection:
            values = {"tenant": storable(tenant), "keep": self._keep - 1}
            connection.execute(_SQL["trim_requests"], values)


def _hour_of(verdict: Verdict, found: tuple[Any, ...] | None) -> dict[str, Any]:
    """Return what the sums gain: in the hour of the request where it is still known."""
    at, namespace, model, version = verdict.at, verdict.namespace, verdict.model, verdict.version
    saved, before = 0.0, None
    if found is not None:
        at, namespace, model, version, saved, before = found
    verified, bad = verdict.by == "verification", verdict.was_served and not verdict.agreed
    return {
        "at": at,
        "namespace": namespace,
        "model": model,
        "version": version,
        "judged": int(verified),
        "wrong": int(verified and bad),
        "reported": int(bad and not verified and before is not False),
        "lost": saved if bad and before is not False else 0.0,
        "verification": verdict.verification,
    }


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


# --- reading, as the ops role ------------------------------------------------------------------


def hours(ops_dsn: str, *, since: datetime, tenant: str | None = None) -> list[dict[str, Any]]:
    """Return the sums of each hour since a moment."""
    return _rows(ops_dsn, "hours", tenant, {"since": since})


def recent(
    ops_dsn: str, *, since: datetime, tenant: str | None = None, limit: int = 10_000
) -> list[dict[str, Any]]:
    """Return the latest requests since a moment, each tenant's newest first."""
    return _rows(ops_dsn, "recent", tenant, {"since": since, "limit": limit})


def find(ops_dsn: str, id_: str, *, tenant: str | None = None) -> list[dict[str, Any]]:
    """Return up to two requests of each tenant whose id begins like this, newest first."""
    return _rows(ops_dsn, "one", tenant, {"id": id_})


def _rows(
    ops_dsn: str, name: str, tenant: str | None, values: dict[str, Any]
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with connected(ops_dsn) as connection:
        for place in tenants(connection, tenant):
            with inside(connection, place):
                rows = connection.execute(_SQL[name], {**values, "tenant": place}).fetchall()
            found += [row for (row,) in rows]
    return found


def sweep(ops_dsn: str, *, now: datetime) -> int:
    """Remove what is older than anybody looks at; return how many rows."""
    removed = 0
    with connected(ops_dsn) as connection:
        for tenant in tenants(connection):
            for name, keep in (("sweep_requests", KEEP_REQUESTS), ("sweep_traffic", KEEP_HOURS)):
                with inside(connection, tenant):
                    values = {"tenant": tenant, "before": now - keep}
                    removed += connection.execute(_SQL[name], values).rowcount
    return removed
