"""What is embedded is the text that is read, so that its words keep their vectors."""

from __future__ import annotations

import numpy as np

from ragcache.types import Document, Embedding, Request
from tests.doubles.embedder import TableEmbedder

DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


class Tokens(TableEmbedder):
    """Gives each character of a text a vector, as a tokenizer's model does with its pieces."""

    async def embed(self, texts):
        return [
            Embedding(
                text=e.text,
                vector=e.vector,
                spans=tuple((n, n + 1) for n in range(len(e.text))),
                token_vectors=np.ones((len(e.text), 4), dtype=np.float32),
            )
            for e in await super().embed(texts)
        ]


async def test_a_question_that_folding_changes_is_stored_with_its_word_vectors(
    make, upstream, tenant
):
    cache = await make(embedder=Tokens())
    for question in ("What is the demurrage fee?", "What is the ｄｅｍｕｒｒａｇｅ\u200b charge?"):
        asked = Request(tenant=tenant, question=question, documents=DOCUMENTS)
        assert (await cache.answer(asked)).status.stored
        asking = cache._asking(asked, cache.target)
        (found,) = await cache.store.find_exact(asking.scope, asking.keys, now=cache._clock())
        assert found.entry.reading["vectors"], question
