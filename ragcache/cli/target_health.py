"""What `ragcache doctor --target` looks at: each server of the model's side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..settings import ApiSettings, Settings
    from ..store.findings import Finding

_PATIENCE_S = 10.0


def look(settings: Settings) -> list[Finding]:
    """Return what each server says of itself, and what that advises."""
    return asyncio.run(_look(settings.api))


async def _look(api: ApiSettings) -> list[Finding]:
    from ..store.findings import Finding

    urls = api.replicas or ((api.base_url,) if api.base_url else ())
    if not urls:
        detail = "no server is named: set api.base_url"
        return [Finding(name="target", ok=False, detail=detail)]
    found = await asyncio.gather(*(_server(url, api) for url in urls))
    return [finding for findings in found for finding in findings]


async def _server(url: str, api: ApiSettings) -> list[Finding]:
    import httpx

    from ..store.findings import Finding

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
    reached = Finding(name="target", ok=True, detail=f"{url} answers")
    if not (metrics.is_success and "vllm:" in metrics.text):
        return [reached]
    return [reached, *_engine(metrics.text)]


def _engine(metrics: str) -> list[Finding]:
    from ..store.findings import Finding
    from ..targets.engine_advice import advice, figures, is_fit
    from ..targets.engine_state import read_metrics

    state = read_metrics(metrics)
    rows = [Finding(name="engine", ok=is_fit(state), detail=figures(state))]
    return rows + [
        Finding(name="advice", ok=is_fit(state), detail=sentence) for sentence in advice(state)
    ]
