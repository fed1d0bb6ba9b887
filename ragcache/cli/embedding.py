"""The embedder of the settings, for verbs: opened, asked from plain code, closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .. import factory
from ..errors import ConfigError
from ..store.reembedding import Space

if TYPE_CHECKING:
    from ..protocols import Embedder
    from ..settings import Settings
    from ..types import Embedding


@contextmanager
def space_of(settings: Settings, home: Path | None) -> Iterator[Space]:
    """Give the embedder of the settings, and the keys that sign, as operations see them.

    Raises:
        ConfigError: The settings name no embedder, or it cannot be loaded.
    """
    embedder = factory.embedder_from(settings)
    if embedder is None:
        raise ConfigError("the settings name no embedder: set embedding.model")
    with asyncio.Runner() as runner:
        try:
            runner.run(embedder.open())
            yield Space(
                id=embedder.id,
                dimensions=embedder.dimensions,
                embed=lambda texts: runner.run(_embedded(embedder, texts)),
                keyring=factory.keyring_from(settings, home or settings.store.home),
                halfvec=settings.store.halfvec,
            )
        finally:
            runner.run(embedder.close())


async def _embedded(embedder: Embedder, texts: Sequence[str]) -> Sequence[Embedding]:
    return await embedder.embed(texts)
