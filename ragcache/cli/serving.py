"""The verb that runs the gateway: serve."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import note
from .options import Config
from .places import DEFAULT_CONFIG, settings_from
from .verbs import add

if TYPE_CHECKING:
    from ..settings import Settings

_APP = "ragcache.gateway.app:from_environment"


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    add(app, serve, "ragcache serve --config config.toml --keys keys.toml")


def serve(
    config: Config = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", help="File of static keys; gateway.keys_file where none is given."),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", help="Where to listen; server.host otherwise.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="0 takes a free one; server.port otherwise.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Processes; gateway.workers otherwise.")
    ] = None,
) -> None:
    """Serve an OpenAI-compatible HTTP API in front of the model.

    Whose a request is comes from its credential alone: a static key, or a signed token. Stops at
    SIGTERM or Ctrl-C when what is under way has ended.
    """
    given = {
        ("gateway", "keys_file"): keys,
        ("gateway", "workers"): workers,
        ("server", "host"): host,
        ("server", "port"): port,
    }
    for (section, name), value in given.items():
        if value is not None:  # by the environment, so that worker processes have it as well
            os.environ[f"RAGCACHE_{section}__{name}".upper()] = str(value)
    settings = settings_from(config)
    _run(settings, config or (DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None))


def _run(settings: Settings, config: Path | None) -> None:
    import uvicorn

    from ..gateway.app import CONFIG_ENV, gateway_from

    gateway_from(settings)  # what is wrong is told here, once, and not by every worker
    refuse_lone_secrets(settings)
    os.environ[CONFIG_ENV] = str(config or "")
    workers = settings.gateway.workers
    with tempfile.TemporaryDirectory(prefix="ragcache-metrics-") as folder:
        if workers > 1:
            os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", folder)
        note(f"serving {settings.model.name} on {settings.server.host}:{settings.server.port}")
        uvicorn.run(
            _APP,
            factory=True,
            host=settings.server.host,
            port=settings.server.port,
            workers=workers,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nothing here believes what a client says of its address
            timeout_graceful_shutdown=settings.gateway.shutdown_s,
            timeout_keep_alive=30,
            log_level="info",
        )


def refuse_lone_secrets(settings: Settings) -> None:
    """Refuse workers that would each sign with a secret of its own.

    Raises:
        ConfigError: Several workers, and no place from which all have the same secrets.
    """
    from ..errors import ConfigError

    store, security = settings.store, settings.security
    embedded = "postgres" in store.kind and not store.dsn.get_secret_value()
    if settings.gateway.workers == 1 or store.kind == "none" or store.home or embedded:
        return
    if security.signing_keys and security.salt_secret.get_secret_value():
        return
    raise ConfigError(
        "several workers must sign with the same keys: set security.signing_keys and "
        "security.salt_secret, or store.home, a folder in which they are made"
    )
