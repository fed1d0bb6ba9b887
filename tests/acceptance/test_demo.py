"""The main promise, on real parts: one LangChain chain, with and without ragcache.

Real documents, real sentence encoder, real Postgres, a real vLLM engine; the questions of the
demonstration, each with what is meant by it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from ragcache.demo.documents import passages
from ragcache.demo.model import own_model
from ragcache.demo.questions import questions_for
from ragcache.demo.run import Findings, Served, Steps, ask_both, index, opened
from ragcache.demo.tally import Comparison, compare
from ragcache.testing import Engine

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1200)]


#: So many questions are asked in the normal tier.
FEWER = 28


@pytest.fixture(
    scope="module",
    params=[FEWER, pytest.param(None, marks=pytest.mark.prove)],
    ids=["fewer", "all"],
)
def findings(vllm_engine: Engine, request: pytest.FixtureRequest) -> Iterator[Findings]:
    texts = passages(None)
    questions = questions_for(None, texts)[: request.param]
    served = Served()
    with Steps(Console(file=io.StringIO())) as steps, opened(served) as cache:
        model = own_model(vllm_engine.base_url, vllm_engine.model)
        retriever = index(texts, steps)
        yield ask_both(model, retriever, cache, served, questions, steps)


@pytest.fixture(scope="module")
def figures(findings: Findings) -> Comparison:
    return compare(findings.plain, findings.cached, price=None)


def test_no_answer_is_served_that_was_written_for_something_else(findings: Findings) -> None:
    wrong = [one for one in findings.cached if one.is_wrong_hit]
    assert not wrong, [(one.question.text, one.written_for) for one in wrong]


def test_no_trap_and_no_follow_up_is_served_from_the_cache(findings: Findings) -> None:
    caught = [
        one.question.text
        for one in findings.cached
        if one.question.kind in ("trap", "follow-up", "new") and one.hit
    ]
    assert not caught


def test_repeats_and_paraphrases_are_served_where_the_same_documents_were_found(
    findings: Findings,
) -> None:
    stored = {one.question.intent for one in findings.cached if one.reply.status.get("stored")}
    again = [
        one
        for one in findings.cached
        if one.question.kind in ("repeat", "paraphrase") and one.question.intent in stored
    ]
    missed = {one.question.text: one.reply.status["reason"] for one in again if not one.hit}
    least = 5 if len(findings.cached) > FEWER else 2
    assert sum(one.hit == "exact" for one in again) >= least
    assert sum(one.hit == "semantic" for one in again) >= least
    assert set(missed.values()) <= {"evidence_missing", "new_evidence"}, missed


def test_the_engine_computes_at_most_60_percent_of_the_prompt_tokens(
    figures: Comparison, findings: Findings
) -> None:
    asked = len(findings.cached)
    print(f"computed: {figures.cached_computed} of {figures.plain_computed}")
    assert figures.computed_share is not None
    assert figures.computed_share <= 0.60
    assert figures.both_sent >= 0.55 * asked


def test_exact_hits_embed_nothing(findings: Findings) -> None:
    ids = {str(one.reply.status["request_id"]) for one in findings.cached if one.hit == "exact"}
    semantic = {
        str(one.reply.status["request_id"]) for one in findings.cached if one.hit == "semantic"
    }
    assert ids
    assert {findings.served.embed_seconds[request_id] for request_id in ids} == {0.0}
    assert all(findings.served.embed_seconds[request_id] > 0 for request_id in semantic)  # control


def test_an_exact_hit_comes_long_before_a_prefix_hit(figures: Comparison) -> None:
    cached = figures.cached
    assert cached.ttft_exact_s is not None
    assert cached.ttft_prefix_hit_s is not None
    assert cached.ttft_cold_s is not None
    assert cached.ttft_exact_s * 5 < cached.ttft_prefix_hit_s < cached.ttft_cold_s


def test_answers_reach_the_caller_as_the_model_gave_them(findings: Findings) -> None:
    for plain, cached in zip(findings.plain, findings.cached, strict=True):
        assert plain.reply.text
        assert cached.reply.text
        assert cached.reply.status["status"].startswith("ragcache; ")
