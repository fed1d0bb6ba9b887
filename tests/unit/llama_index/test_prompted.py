"""What a template was filled with travels with the prompt, and nowhere else."""

from __future__ import annotations

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate

from llama_index_ragcache import wrap
from llama_index_ragcache.prompted import (
    NOTHING,
    Variables,
    prompted_messages,
    prompted_text,
    structured,
    variables_behind,
    variables_of,
)
from ragcache.pipeline import Pipeline

TEMPLATE = PromptTemplate("Context: {context_str}\nQuestion: {query_str}")
FILLED = Variables(context="the fee is 80", query="What is the fee?")


def test_variables_are_those_given_and_those_bound_before() -> None:
    bound = TEMPLATE.partial_format(query_str="What is the fee?")
    assert variables_of(bound, {"context_str": "the fee is 80"}) == FILLED
    assert variables_of(PromptTemplate("{question}"), {"question": "x"}) == NOTHING
    assert variables_of(TEMPLATE, {"context_str": ["a", "list"], "query_str": "q"}).context == ""


def test_prompts_carry_their_variables_and_are_equal_to_plain_ones() -> None:
    messages = [ChatMessage(content="x")]
    assert variables_behind(prompted_messages(messages, FILLED)) == FILLED
    assert prompted_messages(messages, FILLED) == messages
    assert variables_behind(prompted_text("x", FILLED)) == FILLED
    assert prompted_text("x", FILLED) == "x"
    assert variables_behind(messages) == variables_behind("x") == NOTHING


def test_structured_variables_end_with_their_block() -> None:
    with structured(FILLED):
        assert variables_behind("x") == FILLED
    assert variables_behind("x") == NOTHING


@pytest.fixture
def llm():
    """A wrapped LLM that is never called."""
    return wrap(MockLLM(), Pipeline(), tenant="t")


def test_a_wrapped_llm_formats_prompts_with_their_variables(llm) -> None:
    given = {"context_str": "the fee is 80", "query_str": "What is the fee?"}
    messages = llm._get_messages(TEMPLATE, **given)
    text = llm._get_prompt(TEMPLATE, **given)
    assert variables_behind(messages) == variables_behind(text) == FILLED
    assert messages == MockLLM()._get_messages(TEMPLATE, **given)
    assert text == MockLLM()._get_prompt(TEMPLATE, **given)
