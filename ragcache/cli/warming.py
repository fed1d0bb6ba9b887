"""The verb that sends the hottest prefixes ahead of a new version: warm."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import ConfigError
from .console import bar, note, print_json, say
from .options import AsJson, Config
from .places import settings_from
from .verbs import add

if TYPE_CHECKING:
    from ..pipeline.rollout import WarmStep
    from ..types import Request


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    add(app, warm, "ragcache warm --tenant acme --system system-v2.txt --limit 50")


def warm(
    tenant: Annotated[str, typer.Option(help="Whose prefixes.")],
    system: Annotated[
        Path | None,
        typer.Option(help="File with the new system text; each prefix's own where none is given."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model; the settings' by default.")] = None,
    after_model: Annotated[
        str | None, typer.Option(help="The model before, whose traffic is known.")
    ] = None,
    sharing: Annotated[
        Literal["tenant", "public"],
        typer.Option(help="Whose KV cache: the tenant's, or the public."),
    ] = "tenant",
    limit: Annotated[int, typer.Option(min=1, help="Most prefixes.")] = 20,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens altogether.")] = 200_000,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send the prefixes that were asked for most, so that a new version finds them cached.

    Which these are the answering processes keep in the store. Each is sent with the shortest
    answer that the provider allows, the hottest first.
    """
    from ..types import Request

    request = Request(
        tenant=tenant,
        question="",
        system=_text_of(system) if system else "",
        model=model,
        sharing=sharing,
    )
    steps = asyncio.run(
        _run(request, config, limit=limit, max_tokens=max_tokens, after_model=after_model)
    )
    _tell(steps, as_json=as_json)
    if any(step.error for step in steps):
        raise typer.Exit(1)


async def _run(request: Request, config: Path | None, **bounds: Any) -> list[WarmStep]:
    from ..factory import RagCache

    steps: list[WarmStep] = []
    async with RagCache.open(settings_from(config)) as cache:
        with bar("warming") as progress:
            async for step in cache.warm(request, **bounds):
                steps.append(step)
                progress(step.done, step.wanted)
                if step.error:
                    note(f"prefix {step.done}: {step.error}")
    return steps


def _tell(steps: Sequence[WarmStep], *, as_json: bool) -> None:
    sent = [step for step in steps if not step.error]
    row = {
        "wanted": steps[0].wanted if steps else 0,
        "sent": len(sent),
        "failed": len(steps) - len(sent),
        "tokens": sum(step.tokens for step in sent),
    }
    if as_json:
        print_json(row)
    elif not steps:
        say("nothing is known to be hot: prefixes are kept after some 50 requests with a store")
    else:
        say(f"{row['sent']} of {row['wanted']} prefixes sent, about {row['tokens']:,} tokens")


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: byte {error.start}") from error
