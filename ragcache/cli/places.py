"""Which database a verb works on: the one it was given, the settings', or an embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..settings import Settings

DEFAULT_CONFIG = Path("ragcache.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """How each role reaches the database; "" where a role's DSN is not known.

    Holds passwords: never printed. `home` is the folder of an embedded Postgres.
    """

    app: str
    ops: str
    admin: str = ""
    home: Path | None = None

    def __repr__(self) -> str:
        return f"Place(home={self.home})"


def now_utc() -> datetime:
    """Return the present moment."""
    return datetime.now(UTC)


def settings_from(config: Path | None, **overrides: Any) -> Settings:
    """Load the settings file that was named, or the one in this folder, or none.

    What is given besides stands over it.

    Raises:
        ConfigError: The file is missing or wrong.
    """
    from ..settings import Settings

    if config is None and DEFAULT_CONFIG.is_file():
        config = DEFAULT_CONFIG
    return Settings.load(config, **overrides)


def threshold_of(settings: Settings) -> float:
    """Return the similarity where semantic hits begin before the guard knows better."""
    from ..lookup import LookupPolicy

    known = settings.lookup.get("uncertified_threshold", LookupPolicy().uncertified_threshold)
    return float(known)


@contextmanager
def database(config: Path | None, dsn: str | None = None) -> Iterator[Place]:
    """Reach the database as the ops role, for the time of a verb.

    An embedded Postgres that nobody runs is started, and stopped again.

    Args:
        config: The settings file, where one was named.
        dsn: The ops role's DSN, where one was given.

    Raises:
        ConfigError: The settings name a database, but not how ops reaches it.
        StoreError: An embedded Postgres could not be started.
    """
    settings = settings_from(config)
    given = settings.store.dsn.get_secret_value()
    ops = dsn or settings.store.ops_dsn.get_secret_value()
    if ops:
        yield Place(app=given, ops=ops)
        return
    if given:
        raise ConfigError(
            "the settings say how requests reach the database (store.dsn), not how operators do: "
            "set store.ops_dsn or RAGCACHE_STORE__OPS_DSN, or pass --dsn with the ops role's DSN "
            "that `ragcache init` made"
        )
    if "postgres" not in settings.store.kind:
        raise ConfigError(
            f"this verb works on Postgres and store.kind is {settings.store.kind!r}: "
            "pass --dsn, or set store.kind = 'postgres'"
        )
    with embedded(settings.store.home) as place:
        yield place


@contextmanager
def administrator(config: Path | None, dsn: str | None) -> Iterator[str]:
    """Give the DSN of a role that may act as the owner of the schema.

    Raises:
        ConfigError: The settings name a database, but no administrator's DSN was given.
    """
    if dsn:
        yield dsn
        return
    settings = settings_from(config)
    if settings.store.dsn.get_secret_value():
        raise ConfigError(
            "this verb works as the administrator who ran `ragcache init`: pass --dsn, or set "
            "RAGCACHE_ADMIN_DSN"
        )
    with embedded(settings.store.home) as place:
        yield place.admin


@contextmanager
def embedded(home: Path | None) -> Iterator[Place]:
    """Start the embedded Postgres, or join it where it runs; leave it as it was."""
    from ..store.embedded import ensure
    from .console import err

    with err.status("starting the embedded Postgres", spinner="line"):
        ensured = ensure(home)
    try:
        dsns = ensured.dsns
        yield Place(app=dsns.app, ops=dsns.ops, admin=dsns.admin, home=ensured.server.home)
    finally:
        ensured.server.stop()
