"""Kinds of LLMs: completion only, without a finish reason, copied, called on the cache's loop."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from pydantic import PrivateAttr

import ragcache
from llama_index_ragcache import RagCacheLLM, statuses, wrap
from ragcache.errors import ConfigError
from ragcache.events import LookedUp
from tests.fixtures_llama_index import engine_over

QUESTIONS = ("What is the fee?", "How long is the free time?", "Are reefer plugs billed?")


class Completing(CustomLLM):
    """A model that completes texts, and says why it ended where it is told to."""

    says_why: bool = True
    _prompts: list[str] = PrivateAttr(default_factory=list)

    @property
    def prompts(self) -> list[str]:
        return self._prompts

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=4096, num_output=64, model_name="completing")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        self._prompts.append(prompt)
        return CompletionResponse(text="The fee is 80.", raw=self._raw("stop"))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        self._prompts.append(prompt)

        def pieces() -> Any:
            text = ""
            for delta in ("The fee", " is 80."):
                text += delta
                yield CompletionResponse(text=text, delta=delta, raw=self._raw(None))
            yield CompletionResponse(text=text, delta="", raw=self._raw("stop"))

        return pieces()

    def _raw(self, reason: str | None) -> Any:
        return {"choices": [{"finish_reason": reason}]} if self.says_why else None


async def test_a_completion_only_llm_is_laid_out_and_cached(portal, tenant, flapping) -> None:
    llm = wrap(Completing(), portal, tenant=tenant)
    plain, streamed = engine_over(llm, flapping), engine_over(llm, flapping, streaming=True)
    for question in QUESTIONS:
        assert str(plain.query(question)) == "The fee is 80."
        assert "".join(streamed.query(question).response_gen) == "The fee is 80."
        assert str(await plain.aquery(question)) == "The fee is 80."
        response = await streamed.aquery(question)
        assert "".join([t async for t in response.async_response_gen()]) == "The fee is 80."
    assert len(llm.prompts) == 3
    assert len({prompt.split("Query:")[0] for prompt in llm.prompts}) == 1


def test_an_answer_of_which_nobody_says_why_it_ended_is_not_stored(
    portal, tenant, flapping
) -> None:
    llm = wrap(Completing(says_why=False), portal, tenant=tenant)
    with statuses() as told:
        for _ in range(2):
            engine_over(llm, flapping).query(QUESTIONS[0])
    assert len(llm.prompts) == 2
    assert [status["stored"] for status in told] == [False, False]


def test_copies_of_a_wrapped_llm_share_its_cache(portal, tenant, flapping) -> None:
    llm = wrap(Completing(), portal, tenant=tenant)
    engine_over(llm, flapping).query(QUESTIONS[0])
    for other in (llm.model_copy(), copy.copy(llm), copy.deepcopy(llm)):
        with statuses() as told:
            engine_over(other, flapping).query(QUESTIONS[0])
        assert told[-1]["hit"] == "exact"


async def test_a_call_that_blocks_the_caches_loop_is_not_cached(
    make, tenant, flapping, caplog
) -> None:
    llm = wrap(Completing(), await make(), tenant=tenant)
    for _ in range(2):
        assert str(engine_over(llm, flapping).query(QUESTIONS[0])) == "The fee is 80."
    assert len(llm.prompts) == 2
    assert len([r for r in caplog.records if "blocks the event loop" in r.message]) == 1


async def test_an_own_llm_that_blocks_the_caches_loop_says_so(make, tenant) -> None:
    llm = RagCacheLLM(cache=await make(), tenant=tenant)
    with pytest.raises(ConfigError, match="async methods"):
        llm.complete("Hello")


def test_an_own_llm_without_a_target_is_refused(portal, tenant) -> None:
    with pytest.raises(ConfigError, match="no target"):
        RagCacheLLM(cache=portal, tenant=tenant)


async def test_statuses_are_told_in_order_also_of_streams(portal, tenant, flapping) -> None:
    llm = wrap(Completing(), portal, tenant=tenant)
    with statuses() as told, statuses() as also_told:
        engine_over(llm, flapping).query(QUESTIONS[0])
        response = await engine_over(llm, flapping, streaming=True).aquery(QUESTIONS[0])
        assert len(told) == 1
        assert "".join([t async for t in response.async_response_gen()]) == "The fee is 80."
    assert [status.get("hit") for status in told] == [None, "exact"]
    assert told == also_told
    with statuses() as others:
        await asyncio.sleep(0)
    assert others == []


def test_a_prompt_made_by_hand_without_a_query_is_matched_only_as_a_whole(
    portal, tenant, table, events
) -> None:
    """Its question cannot be told from the words around it, which all such prompts share."""
    texts = ["The pilot fee is 80 in this port.", "Tugs are paid by their pull."]
    llm = wrap(Completing(), portal, tenant=tenant)
    with ragcache.documents(texts):
        for question in ("What is a pilot?", "Which pilot is it?", "What is a pilot?"):
            llm.complete("\n\n".join(texts) + f"\n\nAnswer from these. Question: {question}")
    assert len(llm.prompts) == 2
    assert table.texts == []
    outcomes = [e.outcome for e in events if isinstance(e, LookedUp)]
    assert [getattr(o, "kind", None) for o in outcomes] == [None, None, "exact"]
