"""Second opinions for the grey zone: a cross-encoder, or what `ragcache calibrate` has fitted.

Each works in a thread of its own, off the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .embedders import calm, check_installed, located
from .errors import ConfigError, VerifierError
from .lookup.learned import Ranker
from .lookup.reading import Reading, read
from .types import Candidate, Embedding

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


class CrossEncoderVerifier:
    """Any cross-encoder of sentence-transformers, by name or folder, with one label or two.

    It reads both questions together. One label is how alike they are; of two labels, the second
    is "the same".

    Raises:
        ConfigError: sentence-transformers is not installed.
    """

    def __init__(self, model: str, *, revision: str = "", threads: int = 1) -> None:
        check_installed("a cross-encoder")
        self.id = f"cross:{model}:{revision}"
        self._name = located(model)
        self._revision = revision
        self._threads = threads
        self._model: CrossEncoder | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ragcache-verify")

    async def open(self) -> None:
        """Load the model. Raises ConfigError."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._loaded)

    def _loaded(self) -> CrossEncoder:
        if self._model is None:
            from sentence_transformers import CrossEncoder

            calm(self._threads)
            try:
                found = CrossEncoder(self._name, revision=self._revision or None)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"cross-encoder {self._name!r} cannot be loaded ({error}): give the name of "
                    "one that this machine reaches, or a folder that holds it"
                ) from error
            self._model = _checked(found, self._name)
        return self._model

    async def opinions(
        self,
        asked: str,
        embedding: Embedding,  # noqa: ARG002 -- it reads the texts themselves
        stored: Sequence[Candidate],
    ) -> Sequence[float]:
        """Return how sure the model is of each candidate, 0 to 1. Raises VerifierError."""
        pairs = [(candidate.entry.question, asked) for candidate in stored]
        loop = asyncio.get_running_loop()
        scores = await loop.run_in_executor(self._thread, self._scores, pairs)
        if not np.isfinite(scores).all():
            raise VerifierError(f"{self.id} returned {scores.tolist()}: check the model")
        return [float(score) for score in scores]

    def _scores(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        import torch

        raw = self._loaded().predict(
            list(pairs), activation_fn=torch.nn.Identity(), show_progress_bar=False
        )
        values = torch.as_tensor(np.asarray(raw, dtype=np.float32))
        if values.ndim == 1:
            found = torch.sigmoid(values)
        elif values.shape[1] == 1:
            found = torch.sigmoid(values[:, 0])
        else:
            found = torch.softmax(values, dim=1)[:, 1]
        scores: NDArray[np.float32] = found.numpy()
        return scores

    async def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _checked(model: CrossEncoder, name: str) -> CrossEncoder:
    """Refuse what would answer at random: a model without a trained head, or with other labels."""
    trained: Sequence[str] = getattr(model.config, "architectures", None) or ()
    if trained and all(kind.endswith("Model") for kind in trained):
        raise ConfigError(
            f"{name!r} is no cross-encoder: it has no trained head over a pair ({trained[0]})"
        )
    if model.num_labels not in (1, 2):
        raise ConfigError(
            f"cross-encoder {name!r} has {model.num_labels} labels: one or two are needed "
            "(alike; different, same)"
        )
    return model.eval()


class FittedVerifier:
    """What `ragcache calibrate PAIRS --fit FILE` made of a team's own labelled pairs.

    Args:
        path: The file.
        embedder: Id of the embedder in use: the file was fitted to the similarities of one.

    Raises:
        ConfigError: The file is missing or of another version, or was fitted to another embedder.
    """

    def __init__(self, path: str | Path, *, embedder: str) -> None:
        self.id = f"fitted:{path}"
        self._ranker = _ranker(Path(path))
        #: Whether it is asked about names too.
        self.names_told = self._ranker.names
        if self._ranker.embedder != embedder:
            raise ConfigError(
                f"{path} was fitted to the embedder {self._ranker.embedder!r}, not to {embedder!r}"
            )

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def opinions(
        self, asked: str, embedding: Embedding, stored: Sequence[Candidate]
    ) -> Sequence[float]:
        """Return the estimated probability of each candidate. Raises VerifierError."""
        return await asyncio.to_thread(self._scores, asked, embedding, stored)

    def _scores(
        self, asked: str, embedding: Embedding, stored: Sequence[Candidate]
    ) -> Sequence[float]:
        now = read(asked, embedding)
        pairs = [(_reading(each), now, each.similarity) for each in stored]
        return [float(score) for score in self._ranker.scores(pairs)]

    async def close(self) -> None:
        """Nothing is held."""


def _reading(candidate: Candidate) -> Reading:
    found = Reading.from_json(candidate.entry.reading)
    if found is None:
        raise VerifierError(f"entry {candidate.entry.id} was stored without a reading")
    return found


def _ranker(path: Path) -> Ranker:
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
        return Ranker.from_json(value)
    except OSError as error:
        raise ConfigError(f"verifier {path} cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"verifier {path} was not made by `ragcache calibrate`: {error}"
        ) from error
