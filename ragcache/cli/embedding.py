"""The embedder of the settings, for verbs: opened, asked from plain code, closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..factory import embedder_from
from ..store.reembedding import Space

if TYPE_CHECKING:
    from ..protocols import Embedder
    from ..settings import Settings
    from ..types import Vector


@contextmanager
def space_of(settings: Settings) -> Iterator[Space]:
    """Give the embedder of the settings as operations see it.

    Raises:
        ConfigError: The settings name no embedder, or it cannot be loaded.
    """
    embedder = embedder_from(settings)
    if embedder is None:
        raise ConfigError("the settings name no embedder: set embedding.model")
    with asyncio.Runner() as runner:
        try:
            runner.run(embedder.open())
            yield Space(
                id=embedder.id,
                dimensions=embedder.dimensions,
                embed=lambda texts: runner.run(_vectors(embedder, texts)),
            )
        finally:
            runner.run(embedder.close())


async def _vectors(embedder: Embedder, texts: Sequence[str]) -> list[Vector]:
    return [embedding.vector for embedding in await embedder.embed(texts)]
