"""The verb for a vLLM engine of one's own: vllm-args."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from .console import note, print_json, say
from .options import AsJson, Config
from .places import settings_from
from .verbs import add

if TYPE_CHECKING:
    from ..settings import Settings


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    add(app, vllm_args, "ragcache vllm-args --config config.toml", name="vllm-args")


def vllm_args(
    config: Config = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="balanced, long_context or many_tenants."),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option("--platform", help="What the engine runs on: cuda, rocm, xpu or cpu."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the `vllm serve` command that fits the settings.

    The engine arguments of the settings stand over those of the preset. Each is checked against
    the names of the vLLM that is installed here.
    """
    given = {"preset": preset, "platform": platform}
    chosen = {name: value for name, value in given.items() if value}
    command = serve_command(settings_from(config, engine=chosen))
    if as_json:
        print_json({"command": command})
        return
    say(shlex.join(command))


def serve_command(settings: Settings) -> list[str]:
    """Return the command that starts the engine of these settings.

    Raises:
        ConfigError: No model is named, or an engine argument is unknown or refused.
    """
    from ..errors import ConfigError
    from ..targets.engine_options import faults, flags_of, known_arguments, preset_arguments

    engine = settings.engine
    if not settings.model.name:
        raise ConfigError("model.name is missing: which model is to be served?")
    preset = preset_arguments(
        engine.preset, engine.platform, cpu_gib=engine.kv_cpu_gib, disk_path=engine.kv_disk
    )
    made = {**preset, **engine.args}
    known = known_arguments()
    if not known:
        note("vLLM is not installed here: the names of its arguments were not checked")
    wrong = faults(made, platform=engine.platform, known=known)
    if wrong:
        raise ConfigError("engine arguments: " + "; ".join(wrong))
    port = urlsplit(settings.api.base_url).port
    placed = {"port": port} if port else {}
    return ["vllm", "serve", settings.model.name, *flags_of({**placed, **made})]
