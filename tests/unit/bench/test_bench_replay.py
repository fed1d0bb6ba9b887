"""Retrievals replayed: what is served, in other words too, and what each check takes away."""

from __future__ import annotations

import numpy as np
import pytest

from ragcache.bench.replay import asked_of, run
from ragcache.bench.retrieval import Bm25
from ragcache.errors import ConfigError
from ragcache.lookup import LookupPolicy
from ragcache.types import Embedding

PLACES = ("Antwerp", "Bremen", "Calais", "Dover", "Esbjerg", "Felixstowe")
DOCUMENTS = [
    {"id": at, "text": f"The port of {place} charges a fee of {80 + at} for each container."}
    for at, place in enumerate(PLACES)
]


def row(at: int, *others: int) -> dict[str, object]:
    return {
        "query": f"How much is the fee for containers at the port of {PLACES[at]}?",
        "ids": [at, *others],
        "gold": [at],
        "answers": [str(80 + at)],
    }


TRACE = [row(0, 1, 2), row(1, 2, 3), row(2, 3, 4), row(3, 4, 5)]


class OneWord:
    """Everything is alike but for the port: no question has another's vector."""

    id = "one-word"
    dimensions = len(PLACES)

    async def open(self) -> None:
        pass

    async def embed(self, texts):
        return [Embedding(text=text, vector=self._vector(text)) for text in texts]

    def _vector(self, text: str):
        held = np.array([float(place.casefold() in text.casefold()) for place in PLACES], "f")
        return held / max(1.0, float(np.linalg.norm(held)))

    async def close(self) -> None:
        pass


def test_rewordings_are_served_and_what_has_changed_is_not() -> None:
    found = run(asked_of(TRACE, DOCUMENTS), OneWord())
    assert (found["lookups"], found["hits"]) == (4, 0)
    assert found["reworded_served_share"] > 0.5
    changed = found["checks"]["changed"]
    assert changed["none"]["served_different"] > 0, "control: without evidence it is served"
    assert changed["documents"]["served_different"] == 0
    assert found["support_removes"]["reworded"] == {"served_same": 0, "served_different": 0}


def test_an_answer_far_down_in_uncited_documents_is_found_stale_by_its_own_words() -> None:
    last = [
        {**row(0), "query": "What is less than in Bremen, Calais and Dover?", "ids": [1, 2, 3, 0]}
    ]
    found = run(asked_of(last, DOCUMENTS), OneWord(), cited=False)
    assert found["support_removes"]["changed"]["served_different"] > 0
    assert found["checks"]["changed"]["support"]["served_different"] == 0
    assert found["support_removes"]["reworded"]["served_same"] == 0


def test_the_same_answer_to_another_question_is_right() -> None:
    twice = [
        TRACE[0],
        {**TRACE[0], "query": "Please, how much is the fee for containers at the port of Antwerp?"},
    ]
    other = [TRACE[0], {**twice[1], "answers": ["90"]}]
    assert run(asked_of(twice, DOCUMENTS), OneWord())["served_same"] == 1
    assert run(asked_of(other, DOCUMENTS), OneWord())["served_different"] == 1


def test_without_evidence_nothing_is_checked() -> None:
    found = run(asked_of(TRACE, DOCUMENTS), OneWord(), policy=LookupPolicy(evidence=False))
    assert list(found["checks"]["questions"]) == ["none"]


@pytest.mark.parametrize("gone", ["query", "answers"])
def test_a_row_without_a_part_is_named(gone: str) -> None:
    short = {name: value for name, value in TRACE[1].items() if name != gone}
    with pytest.raises(ConfigError, match="request 2"):
        asked_of([TRACE[0], short], DOCUMENTS)


def test_bm25_ranks_rare_words_first_and_knows_none() -> None:
    ranked = Bm25([str(one["text"]) for one in DOCUMENTS])
    assert ranked.best("the fee of the port of Dover", 2)[0] == PLACES.index("Dover")
    assert ranked.best("nothing known", 2) == [0, 1]
