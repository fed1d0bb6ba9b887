"""Each provider gets the fields that it takes, and a request decides neither address nor headers."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ragcache.errors import RequestError
from ragcache.layout import LayoutPolicy, PrefixForest, arrange, plan_breakpoints
from ragcache.providers import find_rules
from ragcache.targets.body import DIALECTS, arguments
from ragcache.types import Call, Document, Message, Request
from tests.doubles.strict import deepseek_fault, host_fault, openai_fault

TEXT = "The demurrage fee is charged for each day in port. " * 120
DOCUMENTS = tuple(Document(text=f"Rule {at}. {TEXT}", source=f"{at}.md") for at in range(6))
TOOL = {
    "type": "function",
    "function": {
        "name": "rate",
        "parameters": {"type": "object", "properties": {"cache_control": {"type": "string"}}},
    },
    "cache_control": {"type": "ephemeral"},
}
HINTS = {
    "cache_salt": "theirs",
    "prompt_cache_key": "theirs",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "implicit"},
}


def call(provider: str = "openai", model: str = "gpt-5.6", **fields: Any) -> Call:
    """A call as the pipeline makes it, with its marks planned."""
    request = Request(
        tenant="t", question="What is the fee?", system="Be brief.", documents=DOCUMENTS
    )
    layout = arrange(request, policy=LayoutPolicy())
    marks = plan_breakpoints(
        layout,
        rules=find_rules(provider, model),
        tree=PrefixForest().tree("g"),
        mode="always",
    )
    given: dict[str, Any] = {
        "model": model,
        "messages": layout.messages,
        "tools": layout.tools,
        "layout": layout,
        "breakpoints": marks.breakpoints,
        "cache_salt": "s" * 43,
        "prompt_cache_key": "k" * 32,
    }
    return Call(**(given | fields))


def body(call: Call, provider: str, **options: Any) -> dict[str, Any]:
    """The body as the client puts it on the wire."""
    made = arguments(call, provider, **options)
    return {k: v for k, v in made.items() if k != "extra_body"} | made.get("extra_body", {})


@pytest.mark.parametrize(
    ("provider", "model", "fields", "mark"),
    [
        (
            "openai",
            "gpt-5.6",
            {"prompt_cache_key", "prompt_cache_options"},
            "prompt_cache_breakpoint",
        ),
        ("openai", "gpt-4o", {"prompt_cache_key"}, ""),
        ("openai", "gpt-9", {"prompt_cache_key"}, ""),
        ("mistral", "mistral-large-latest", {"prompt_cache_key"}, ""),
        ("vllm", "qwen", {"cache_salt"}, ""),
        ("qwen", "qwen-plus", set(), "cache_control"),
        ("anthropic", "claude-sonnet-4-5", set(), "cache_control"),
        ("deepseek", "deepseek-chat", set(), ""),
        ("kimi", "kimi-k2.5", set(), ""),
        ("gemini", "gemini-2.5-flash", set(), ""),
        ("generic", "gpt-5.6", set(), ""),
        ("nobody", "claude-sonnet-4-5", set(), ""),
    ],
)
def test_P06_each_provider_gets_its_own_fields_and_marks(provider, model, fields, mark):
    sent = body(call(provider, model), provider)
    assert set(sent) & HINTS.keys() == fields
    marks = {
        name for name in ("cache_control", "prompt_cache_breakpoint") if name in json.dumps(sent)
    }
    assert marks == ({mark} if mark else set())


@pytest.mark.parametrize("provider", sorted({*DIALECTS, "deepseek", "generic"}))
def test_P06_what_a_provider_does_not_take_is_left_out_at_every_depth(provider):
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    part |= {"prompt_cache_breakpoint": {"mode": "explicit"}}
    messages = (
        Message(role="system", content=(part,)),
        Message(role="user", content="q", extra={"cache_control": {"type": "ephemeral"}}),
    )
    asked = Call(
        model="m",
        messages=messages,
        tools=(TOOL,),
        params={"temperature": 0.2, "extra_body": HINTS},
    )
    before = copy.deepcopy(asked)
    sent = body(asked, provider)
    assert asked == before
    assert sent["temperature"] == 0.2
    dialect = DIALECTS.get(provider)
    taken = (dialect.fields | dialect.marks) if dialect else frozenset()
    assert set(sent) & HINTS.keys() == (HINTS.keys() & taken) - {"cache_salt"}
    # A schema property of that name is a property, not a mark.
    assert "cache_control" in sent["tools"][0]["function"]["parameters"]["properties"]
    found = {
        m
        for m in ("cache_control", "prompt_cache_breakpoint")
        if m in sent["messages"][0]["content"][0]
    }
    assert found == {m for m in ("cache_control", "prompt_cache_breakpoint") if m in taken}
    assert ("cache_control" in sent["messages"][1]) == ("cache_control" in taken)
    assert ("cache_control" in sent["tools"][0]) == ("cache_control" in taken)


def test_P07_the_callers_salt_is_overwritten_or_removed():
    theirs = {"extra_body": {"cache_salt": "acme/eu@stage"}, "cache_salt": "acme/eu@stage"}
    assert body(call(model="m", params=theirs), "vllm")["cache_salt"] == "s" * 43
    assert "cache_salt" not in body(call(model="m", params=theirs, cache_salt=None), "vllm")
    assert "cache_salt" not in body(call(model="m", params=theirs), "generic")


def test_planned_marks_stand_behind_blocks_and_the_implicit_one_is_off():
    sent = body(call(), "openai")
    parts = sent["messages"][-1]["content"]
    marked = [at for at, part in enumerate(parts) if "prompt_cache_breakpoint" in part]
    assert marked
    assert max(marked) < len(parts) - 1  # the question is never inside
    assert sent["prompt_cache_options"] == {"mode": "explicit"}
    assert openai_fault(sent) == ""


def test_a_model_that_can_be_marked_gets_parts_even_without_marks():
    parts = body(call(breakpoints=()), "openai")["messages"][-1]["content"]
    assert [p["text"] for p in parts] == [
        p["text"] for p in body(call(), "openai")["messages"][-1]["content"]
    ]
    assert "".join(p["text"] for p in parts) == call().messages[-1].content


def test_the_callers_own_options_stay():
    sent = body(call(params=HINTS), "openai")
    assert sent["prompt_cache_options"] == {"mode": "implicit"}
    assert sent["prompt_cache_key"] == "theirs"


@pytest.mark.parametrize("name", ["base_url", "api_key", "extra_headers", "extra_query", "headers"])
def test_address_and_headers_come_from_the_settings_only(name):
    for params in ({name: {"X": "secret"}}, {"extra_body": {name: "secret"}}):
        with pytest.raises(RequestError, match=f"'{name}' cannot be set by a request") as refused:
            arguments(call(params=params), "openai")
        assert "secret" not in str(refused.value)


def test_what_the_target_decides_is_not_taken_from_the_caller():
    params = {"stream": True, "stream_options": {}, "messages": [], "model": "x", "request_id": "r"}
    sent = body(call(params={**params, "timeout": 3.0, "top_k": 5}), "generic")
    assert sent["model"] == "gpt-5.6"
    assert sent["messages"]
    assert sent["timeout"] == 3.0  # an option of the client
    assert sent["top_k"] == 5
    assert not {"stream", "stream_options", "request_id"} & set(sent)


@pytest.mark.parametrize(
    ("provider", "model", "fault"),
    [
        ("openai", "gpt-5.6", openai_fault),
        ("openai", "gpt-4o", openai_fault),
        ("deepseek", "deepseek-chat", deepseek_fault),
        ("generic", "m", host_fault),
    ],
)
def test_strict_hosts_accept_the_body(provider, model, fault):
    history = (
        Message(role="developer", content="D"),
        Message(role="user", content="q1"),
        Message(role="assistant", content="a1"),
    )
    asked = call(provider, model, params={"temperature": 0.2, **HINTS})
    assert fault(body(asked, provider)) == ""
    turns = Call(model=model, messages=(*history, Message(role="user", content="q2")))
    assert fault(body(turns, provider)) == ""
    # Control: another provider's body is refused.
    other = "vllm" if provider != "vllm" else "openai"
    assert fault(body(asked, other)) != ""


def test_P01_a_strict_template_gets_one_system_message_and_turns():
    messages = (
        Message(role="system", content="A"),
        Message(role="system", content="B"),
        Message(role="user", content="q"),
    )
    sent = body(Call(model="m", messages=messages), "generic", host="strict")
    assert sent["messages"] == [
        {"role": "system", "content": "A\n\nB"},
        {"role": "user", "content": "q"},
    ]
