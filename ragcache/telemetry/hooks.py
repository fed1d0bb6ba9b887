"""The hooks that settings ask for, as far as their packages are installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..events import Hooks
from . import savings

if TYPE_CHECKING:
    from ..settings import TelemetrySettings
    from .recorder import Recorder


def subscribe(hooks: Hooks, settings: TelemetrySettings, *, app_dsn: str = "") -> Recorder | None:
    """Subscribe what the settings ask for; return the recorder, which has to be closed.

    Args:
        hooks: Where they subscribe.
        settings: What is asked for.
        app_dsn: The app role's, where requests are to be recorded in Postgres.

    Raises:
        ConfigError: A package is missing that was asked for, a price is wrong, or the request log
            cannot be written.
    """
    prices = savings.prices_of(settings.prices, file=settings.prices_file)
    if _wanted(settings.prometheus, "prometheus_client", "prometheus"):
        from .prometheus import PrometheusHook

        hooks.add(PrometheusHook(prices=prices, tenant_label=settings.tenant_label, hooks=hooks))
    if _wanted(settings.opentelemetry, "opentelemetry.trace", "opentelemetry"):
        from .otel import OpenTelemetryHook

        hooks.add(
            OpenTelemetryHook(
                prices=prices, contents=settings.contents, tenant_label=settings.tenant_label
            )
        )
    if settings.request_log is not None:
        from .request_log import RequestLog

        hooks.add(RequestLog(settings.request_log))
    if not (settings.record and app_dsn):
        return None
    from ..store.traffic import TrafficWriter
    from .recorder import Recorder

    recorder = Recorder(
        TrafficWriter(app_dsn, keep=settings.keep), prices=prices, contents=settings.contents
    )
    hooks.add(recorder)
    return recorder


def _wanted(said: bool | None, package: str, setting: str) -> bool:  # noqa: FBT001 -- a setting as it is
    if said is False:
        return False
    root = package.partition(".")[0]
    installed = find_spec(root) is not None and find_spec(package) is not None
    if said and not installed:
        raise ConfigError(
            f"telemetry.{setting} is on and {root} is not installed: "
            "pip install 'ragcache-middleware[telemetry]'"
        )
    return installed
