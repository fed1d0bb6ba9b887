"""Everything of the inner LLM survives: raw and wrapped give the same, body and answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.callbacks import CallbackManager, CBEventType, TokenCountingHandler
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index_instrumentation import get_dispatcher
from pydantic import BaseModel, Field

from llama_index_ragcache import RagCacheLLM, wrap
from ragcache.targets.openai import OpenAITarget

pytestmark = pytest.mark.llama_index

QUESTION = "What is the demurrage fee?"
MESSAGES = [ChatMessage(content=QUESTION)]


class Tariff(BaseModel):
    """A tariff."""

    fee: float = Field(description="per day")
    port: str


def rate_quote(port: str, days: int) -> str:
    """Quote a rate."""
    return f"{port}: {days * 80}"


TOOL = FunctionTool.from_defaults(rate_quote)
TEMPLATE = PromptTemplate("Answer: {question}")


def pieces(stream: Any) -> list[Any]:
    """A stream as its reader saw it: LlamaIndex goes on changing the pieces it gave."""
    return [bare(piece) for piece in stream]


def bare(value: Any) -> Any:
    """An answer without our own mark and without what a provider's client made of it."""
    if isinstance(value, ChatResponse | CompletionResponse):
        copy = value.model_copy(deep=True)
        copy.raw = None
        copy.additional_kwargs.pop("ragcache", None)
        return copy
    if isinstance(value, BaseModel) and not isinstance(value, Tariff):
        return value.model_dump()  # a class made for this call
    return value


USES: dict[str, Callable[[Any], Any]] = {
    "chat": lambda m: m.chat(MESSAGES),
    "chat with a limit": lambda m: m.chat(MESSAGES, max_tokens=7, stop=["80"]),
    "chat streamed": lambda m: pieces(m.stream_chat(MESSAGES)),
    "completion": lambda m: m.complete(QUESTION),
    "completion streamed": lambda m: pieces(m.stream_complete(QUESTION)),
    "predict": lambda m: m.predict(TEMPLATE, question=QUESTION),
    "predict streamed": lambda m: pieces(m.stream(TEMPLATE, question=QUESTION)),
    "awaited chat": lambda m: asyncio.run(m.achat(MESSAGES)),
    "awaited completion": lambda m: asyncio.run(m.acomplete(QUESTION)),
    "tools": lambda m: m.chat_with_tools([TOOL], user_msg=QUESTION),
    "tools called": lambda m: m.get_tool_calls_from_response(
        m.chat_with_tools([TOOL], user_msg=QUESTION, tool_required=True)
    ),
    "tools streamed": lambda m: pieces(m.stream_chat_with_tools([TOOL], user_msg=QUESTION)),
    "tool run": lambda m: m.predict_and_call([TOOL], user_msg=QUESTION).response,
    "structured": lambda m: m.structured_predict(Tariff, TEMPLATE, question=QUESTION),
    "structured streamed": lambda m: pieces(
        m.stream_structured_predict(Tariff, TEMPLATE, question=QUESTION)
    ),
    "structured LLM": lambda m: m.as_structured_llm(Tariff).chat(MESSAGES).message.content,
    "what it is": lambda m: (m.metadata, m.class_name(), m.model, type(m).__name__),
    "what is traced": lambda m: m.to_payload(),
    "dumped": lambda m: m.to_dict(),
}


@pytest.mark.parametrize("kind", ["open_ai", "open_ai_like"])
@pytest.mark.parametrize("use", USES)
def test_raw_and_wrapped_are_equal(use, kind, brain, portal, tenant, request) -> None:
    raw = request.getfixturevalue(kind)(api_base=brain.base_url)
    expected = bare(USES[use](raw))
    bodies, brain.bodies = brain.bodies, []
    found = bare(USES[use](wrap(raw, portal, tenant=tenant)))
    assert found == expected
    assert brain.bodies == bodies


def test_a_changed_setting_counts(open_ai, upstream, portal, tenant) -> None:
    llm = wrap(open_ai(temperature=0.0), portal, tenant=tenant)
    llm.chat(MESSAGES)
    llm.temperature = 0.9
    llm.chat(MESSAGES)
    assert [b["temperature"] for b in upstream.bodies] == [0.0, 0.9]


def test_wrapping_again_binds_anew(open_ai, portal, tenant) -> None:
    one = wrap(open_ai(), portal, tenant=tenant)
    two = wrap(one, portal, tenant="other")
    assert type(one) is type(two)
    assert (one.bound_tenant, two.bound_tenant) == (tenant, "other")


def test_the_original_is_left_alone(open_ai, portal, tenant) -> None:
    llm = open_ai()
    before = dict(llm.__dict__)
    wrap(llm, portal, tenant=tenant).temperature = 0.7
    assert llm.__dict__ == before
    assert not hasattr(llm, "bound_tenant")


class Recorder(BaseEventHandler):
    """Keeps the names of the events about LLMs."""

    names: list[str] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "Recorder"

    def handle(self, event: Any, **_: Any) -> None:
        if event.class_name().startswith("LLM"):
            self.names.append(event.class_name())


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Events of this test."""
    root = get_dispatcher()
    found = Recorder()
    root.add_event_handler(found)
    yield found
    root.event_handlers.remove(found)


@pytest.mark.parametrize("use", ["chat", "chat streamed", "completion", "predict", "structured"])
def test_events_are_the_same_and_told_once(use, open_ai, brain, portal, tenant, recorder) -> None:
    raw = open_ai(api_base=brain.base_url)
    USES[use](raw)
    expected, recorder.names = recorder.names, []
    USES[use](wrap(raw, portal, tenant=tenant))
    assert recorder.names == expected


def test_tokens_are_counted_once(open_ai, upstream, portal, tenant) -> None:
    counts = []
    for wrapped in (False, True):
        counter = TokenCountingHandler(tokenizer=str.split)
        llm = open_ai(callback_manager=CallbackManager([counter]))
        llm = wrap(llm, portal, tenant=tenant) if wrapped else llm
        llm.chat(MESSAGES)
        list(llm.stream_chat(MESSAGES))
        counts.append((len(counter.llm_token_counts), counter.total_llm_token_count))
    assert counts[0] == counts[1]
    assert counts[0][0] == 2


def test_a_callback_manager_set_later_counts(open_ai, upstream, portal, tenant) -> None:
    """Synthesizers set it on the LLM they are given."""
    llm = wrap(open_ai(), portal, tenant=tenant)
    counter = TokenCountingHandler(tokenizer=str.split)
    llm.callback_manager = CallbackManager([counter])
    llm.chat(MESSAGES)
    assert counter.total_llm_token_count == 105


def test_errors_of_the_provider_pass_unchanged(open_ai, upstream, portal, tenant) -> None:
    import openai

    from tests.doubles.upstream import Reply

    upstream.answer(Reply(status=429))
    llm = wrap(open_ai(), portal, tenant=tenant)
    with pytest.raises(openai.RateLimitError):
        llm.chat(MESSAGES)
    with pytest.raises(openai.RateLimitError):
        list(llm.stream_chat(MESSAGES))


def test_own_llm_is_a_function_calling_one_with_the_targets_name(portal, tenant) -> None:
    target = OpenAITarget(model="fake", base_url="http://127.0.0.1:9/v1")
    llm = RagCacheLLM(cache=portal, target=target, tenant=tenant, context_window=4096)
    assert isinstance(llm, FunctionCallingLLM)
    assert (llm.metadata.model_name, llm.metadata.context_window) == ("fake", 4096)
    assert llm.metadata.is_function_calling_model
    assert llm.metadata.is_chat_model
    portal.run(target.close())


def test_own_llm_announces_its_calls(portal, tenant, own_target, upstream, recorder) -> None:
    counter = TokenCountingHandler(tokenizer=str.split)
    llm = RagCacheLLM(
        cache=portal,
        target=own_target,
        tenant=tenant,
        callback_manager=CallbackManager([counter]),
    )
    llm.chat(MESSAGES)
    assert recorder.names == ["LLMChatStartEvent", "LLMChatEndEvent"]
    assert counter.total_llm_token_count == 105
    assert CBEventType.LLM not in counter.event_ends_to_ignore
