"""Embedding on the way: one batch for those who ask together, recent vectors kept, faults told."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from ragcache.embedders import Batched, unit
from ragcache.errors import EmbeddingError
from tests.doubles.embedder import TableEmbedder


class Counting(TableEmbedder):
    """Keeps the batches it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.fault: Exception | None = None

    async def embed(self, texts):
        self.batches.append(list(texts))
        if self.fault is not None:
            raise self.fault
        return await super().embed(texts)


async def test_questions_asked_together_are_one_batch_and_equal_ones_one_text():
    inner = Counting()
    batched = Batched(inner, window_s=0.01)
    asked = ["a", "b", "a", "c"]
    found = await asyncio.gather(*(batched.embed([text]) for text in asked))
    assert inner.batches == [["a", "b", "c"]]
    assert [e.text for (e,) in found] == asked
    assert np.array_equal(found[0][0].vector, found[2][0].vector)
    await batched.close()


async def test_recent_vectors_are_kept_and_the_oldest_leave():
    inner = Counting()
    batched = Batched(inner, window_s=0.0, keep=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await batched.embed([text])
    assert inner.batches == [["a"], ["b"], ["c"], ["b"]]
    await batched.close()


async def test_a_failing_batch_fails_each_of_its_askers_and_is_not_kept():
    inner = Counting()
    batched = Batched(inner, window_s=0.01)
    inner.fault = RuntimeError("no weights")
    found = await asyncio.gather(batched.embed(["a"]), batched.embed(["b"]), return_exceptions=True)
    assert [type(e) for e in found] == [EmbeddingError, EmbeddingError]
    inner.fault = None
    assert (await batched.embed(["a"]))[0].text == "a"
    await batched.close()


async def test_an_asker_who_leaves_takes_nobody_along():
    batched = Batched(Counting(), window_s=0.02)
    leaving = asyncio.create_task(batched.embed(["a"]))
    staying = asyncio.create_task(batched.embed(["a"]))
    await asyncio.sleep(0)
    leaving.cancel()
    assert (await staying)[0].text == "a"
    await batched.close()


@pytest.mark.parametrize("vector", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_a_vector_that_is_none_is_an_error(vector):
    with pytest.raises(EmbeddingError, match="length"):
        unit(vector, of="E")
