"""What `ragcache doctor --target` looks at: each server of the model's side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from ..settings import ApiSettings, Settings
    from ..store.findings import Finding
    from ..targets.engine_state import EngineState

_PATIENCE_S = 10.0
#: Hybrid models have blocks of 500 to 2,000 tokens: whole prompts can be shorter.
_LARGE_BLOCK = 256


def look(settings: Settings) -> list[Finding]:
    """Return what each server says of itself, and what that advises."""
    return asyncio.run(_look(settings))


def servers(api: ApiSettings) -> tuple[str, ...]:
    """Return the base URLs of the servers that the settings name."""
    return api.replicas or ((api.base_url,) if api.base_url else ())


async def _look(settings: Settings) -> list[Finding]:
    from ..store.findings import Finding

    urls = servers(settings.api)
    if not urls:
        detail = "no server is named: set api.base_url"
        return [Finding(name="target", ok=False, detail=detail)]
    found = await asyncio.gather(*(_server(url, settings) for url in urls))
    return [finding for findings in found for finding in findings]


async def _server(url: str, settings: Settings) -> list[Finding]:
    import httpx

    from ..store.findings import Finding

    api = settings.api
    headers = {name: value.get_secret_value() for name, value in api.headers.items()}
    if api.key():
        headers["Authorization"] = f"Bearer {api.key()}"
    try:
        async with httpx.AsyncClient(headers=headers, timeout=_PATIENCE_S) as client:
            models = await client.get(f"{url.rstrip('/')}/models")
            metrics = await client.get(f"{url.rstrip('/').removesuffix('/v1')}/metrics")
    except httpx.HTTPError as error:
        told = f"{url} cannot be reached: {error or type(error).__name__}"
        return [Finding(name="target", ok=False, detail=told)]
    if not models.is_success:
        told = f"{url}/models answered {models.status_code}: check api.base_url and the key"
        return [Finding(name="target", ok=False, detail=told)]
    found = [Finding(name="target", ok=True, detail=f"{url} answers")]
    found += _model(_names(models), settings.model.name)
    if metrics.is_success and "vllm:" in metrics.text:
        found += _engine(metrics.text, settings.layout)
    return found


def _names(models: httpx.Response) -> list[str]:
    """Return the models that a server lists; none where it lists them in another form."""
    try:
        rows = models.json()["data"]
        return [str(row["id"]) for row in rows]
    except (ValueError, KeyError, TypeError):
        return []


def _model(served: list[str], wanted: str) -> list[Finding]:
    from ..store.findings import Finding

    if not served or not wanted:
        return []
    if wanted in served:
        return [Finding(name="model", ok=True, detail=f"{wanted} is served")]
    told = f"{wanted} is not among the models it serves: set model.name to one of "
    return [Finding(name="model", ok=False, detail=told + ", ".join(sorted(served)[:8]))]


def _engine(metrics: str, layout: Mapping[str, Any]) -> list[Finding]:
    from ..store.findings import Finding
    from ..targets.engine_advice import advice, figures, is_fit
    from ..targets.engine_state import read_metrics

    state = read_metrics(metrics)
    rows = [Finding(name="engine", ok=is_fit(state), detail=figures(state))]
    rows += [
        Finding(name="advice", ok=is_fit(state), detail=sentence) for sentence in advice(state)
    ]
    return [*rows, *_block_size(state, layout.get("block_size"))]


def _block_size(state: EngineState, said: Any) -> list[Finding]:
    from ..store.findings import Finding

    size = state.block_size
    if size is None:
        return []
    detail = f"{size:,} tokens: what is reused is rounded down to whole blocks"
    if said is not None and said != size:
        detail = f"layout.block_size says {said}, the engine's is {size}: set it to that"
        return [Finding(name="block size", ok=False, detail=detail)]
    many = "" if size <= _LARGE_BLOCK else "a shared prefix below a block is never reused"
    return [Finding(name="block size", ok=True, detail=detail, advice=many)]
