"""Everything of the inner model survives: raw and wrapped give the same, body and answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from langchain_ragcache import wrap

QUESTION = "What is the demurrage fee?"


class Tariff(BaseModel):
    """A tariff."""

    fee: float = Field(description="per day")
    port: str


@tool
def rate_quote(port: str, days: int) -> str:
    """Quote a rate."""
    return f"{port}: {days * 80}"


def bare(message: Any) -> Any:
    """A message (or what holds one) without ids and without our own mark."""
    if isinstance(message, BaseMessage):
        copy = message.model_copy(deep=True)
        copy.id = None
        for name in ("id", "ragcache"):
            copy.response_metadata.pop(name, None)
        return copy
    if isinstance(message, Exception):
        return repr(message)
    if isinstance(message, dict):
        return {k: bare(v) for k, v in message.items()}
    return message


USES: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda m: m.invoke(QUESTION),
    "stop": lambda m: m.bind(stop=["80"]).invoke(QUESTION),
    "stream": lambda m: list(m.stream(QUESTION)),
    "batch": lambda m: m.batch([QUESTION, "Another?"]),
    "tools": lambda m: m.bind_tools([rate_quote]).invoke(QUESTION),
    "tools forced": lambda m: m.bind_tools([rate_quote], tool_choice="any").invoke(QUESTION),
    "tools streamed": lambda m: list(m.bind_tools([rate_quote]).stream(QUESTION)),
    "schema": lambda m: m.with_structured_output(Tariff).invoke(QUESTION),
    "schema raw": lambda m: m.with_structured_output(Tariff, include_raw=True).invoke(QUESTION),
    "schema by function": lambda m: m.with_structured_output(
        Tariff, method="function_calling", include_raw=True
    ).invoke(QUESTION),
    "json mode": lambda m: m.with_structured_output(
        Tariff, method="json_mode", include_raw=True
    ).invoke(QUESTION),
    "json schema": lambda m: m.with_structured_output(
        Tariff.model_json_schema(), include_raw=True
    ).invoke(QUESTION),
    "schema streamed": lambda m: list(m.with_structured_output(Tariff).stream(QUESTION)),
    "retry": lambda m: m.with_retry().invoke(QUESTION),
    "config": lambda m: m.with_config(tags=["x"]).invoke(QUESTION),
    "two answers": lambda m: m.bind(n=2).invoke(QUESTION),
    "name": lambda m: (m.model_name, m._llm_type, m.profile, m._get_ls_params()),
    "tokens": lambda m: m._get_invocation_params(stop=["x"]),
    "fallback of tools": lambda m: m.with_fallbacks([m]).bind_tools([rate_quote]).invoke(QUESTION),
}


@pytest.mark.parametrize("use", USES)
def test_raw_and_wrapped_are_equal(use: str, thinking, brain, portal, tenant) -> None:
    raw = thinking()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = USES[use](raw)
        bodies, brain.bodies[:] = list(brain.bodies), []
        wrapped = USES[use](wrap(raw, portal, tenant=tenant))
    if isinstance(plain, list):
        assert [bare(m) for m in wrapped] == [bare(m) for m in plain]
    else:
        assert bare(wrapped) == bare(plain)
    assert sorted(map(repr, brain.bodies)) == sorted(map(repr, bodies))  # a batch has no order


async def events(runnable: Any, version: str) -> list[tuple[str, str]]:
    return [
        (e["event"], e["name"].removeprefix("RagCache"))
        async for e in runnable.astream_events(QUESTION, version=version)
    ]


async def test_events_are_the_same_kinds_in_the_same_number(thinking, portal, tenant) -> None:
    raw = thinking()
    plain = await events(raw, "v2")
    wrapped = await events(wrap(raw, portal, tenant=tenant), "v2")
    assert [e for e, _ in wrapped] == [e for e, _ in plain]


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
async def test_events_v3_carry_text_and_usage(thinking, portal, tenant) -> None:
    llm = wrap(thinking(), portal, tenant=tenant)
    stream = await llm.astream_events(QUESTION, version="v3")
    message = await stream
    assert message.text == "The fee is 80 per day."
    assert message.usage_metadata["input_tokens"] == 100


@pytest.mark.parametrize("inside_chain", [False, True])
def test_tokens_are_counted_once(inside_chain, thinking, portal, tenant) -> None:
    counted = UsageMetadataCallbackHandler()
    llm = wrap(thinking(), portal, tenant=tenant)
    runnable = (lambda q: q) | llm if inside_chain else llm  # type: ignore[operator]  # LCEL's own
    message = runnable.invoke(QUESTION, {"callbacks": [counted]})
    assert isinstance(message, AIMessage)
    assert [u["total_tokens"] for u in counted.usage_metadata.values()] == [105]


def test_fallbacks_keep_their_tools(thinking, brain, portal, tenant) -> None:
    """Without the annotation `Runnable` on bind_tools the fallbacks would vanish silently."""
    dead = thinking(base_url="http://127.0.0.1:9/v1")
    llm = wrap(dead.with_fallbacks([thinking()]), portal, tenant=tenant)
    answer = llm.bind_tools([rate_quote]).invoke(QUESTION)
    assert answer.tool_calls[0]["name"] == "rate_quote"
    assert [b["tools"][0]["function"]["name"] for b in brain.bodies] == ["rate_quote"]
