"""Prompts of document sets for the real engine, and how they are asked through the pipeline."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from ragcache.pipeline import Pipeline
from ragcache.types import Answer, Document, Request

_SUBJECTS = ("router", "ledger", "harbour", "turbine", "archive", "orchard", "viaduct", "kiln")
_QUESTIONS = ("Who holds paper?", "How many boxes are there?", "Which one is first?", "What is 3?")


def document(name: str, sentences: int = 8) -> Document:
    """A document of about 16 tokens a sentence that no other one begins alike."""
    lines = (
        f"{name} {number}: the {_SUBJECTS[number % len(_SUBJECTS)]} holds "
        f"{number * 7 % 97} boxes of {name}."
        for number in range(sentences)
    )
    return Document(text="\n".join(lines), source=f"{name}.md")


def request(
    tenant: str, *names: str, question: str = "Who holds paper?", tokens: int = 1
) -> Request:
    """A question over documents."""
    return Request(
        tenant=tenant,
        system="Answer from the documents only, in one sentence, and name the document.",
        documents=tuple(document(name) for name in names),
        question=question,
        params={"max_tokens": tokens, "temperature": 0},
        no_cache=True,
        no_store=True,
    )


def trace(tenant: str, count: int, *, sets: int = 5, seed: int = 11) -> list[Request]:
    """Questions over a few hot sets of three documents, in random order within a set."""
    draw = random.Random(seed)
    groups = [[f"set{group} part{part}" for part in range(3)] for group in range(sets)]
    asked = []
    for number in range(count):
        names = draw.choice(groups)
        question = f"{draw.choice(_QUESTIONS)} ({number})"
        asked.append(request(tenant, *draw.sample(names, 3), question=question))
    return asked


async def ask_all(pipeline: Pipeline, requests: Sequence[Request]) -> list[Answer]:
    """Ask one after the other."""
    return [await pipeline.answer(r) for r in requests]


def delta(before: Mapping[str, float], after: Mapping[str, float], name: str) -> int:
    """How much a counter grew."""
    return int(after[name] - before[name])


def cached(answers: Sequence[Answer]) -> int:
    """Tokens served from the engine's cache."""
    return sum(answer.usage.cached_tokens or 0 for answer in answers)
