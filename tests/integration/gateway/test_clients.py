"""OpenAI's clients, LangChain's and curl, unchanged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from openai import NotFoundError, OpenAI
from pydantic import BaseModel

from tests.doubles.upstream import Reply

TOOL = {
    "type": "function",
    "function": {
        "name": "get_fee",
        "description": "Look a fee up.",
        "parameters": {"type": "object", "properties": {"day": {"type": "integer"}}},
    },
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_fee", "arguments": '{"day": 3}'},
}
USER = [{"role": "user", "content": "What is the fee on day 3?"}]
CALLING = Reply(text="", finish_reason="tool_calls", tool_calls=[CALL])


class Fee(BaseModel):
    """A fee."""

    amount: int


@pytest.fixture
def client(gateway):
    with OpenAI(
        base_url=f"{gateway.url}/v1", api_key=gateway.keys["acme"], max_retries=0
    ) as client:
        yield client


def chat(client: OpenAI, **fields: Any):
    return client.chat.completions.create(**{"model": "fake", "messages": USER, **fields})


def test_openai_asks_and_is_served_the_second_time(client, upstream):
    first, second = chat(client), chat(client)
    assert first.choices[0].message.content == "The fee is 80."
    assert second.choices[0].message.content == "The fee is 80."
    assert first.usage.total_tokens == 105
    assert second.usage.total_tokens == 0
    assert len(upstream.bodies) == 1
    assert upstream.headers[0]["authorization"] == "Bearer of-the-upstream"


def test_openai_streams_fresh_and_stored_answers_alike(client, upstream):
    upstream.answer(Reply(text="The fee is 80.", pieces=["The fee", " is", " 80."]))
    told = []
    for _ in range(2):
        chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
        told.append("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert chunks[-1].usage is not None
        assert len({chunk.id for chunk in chunks}) == 1
    assert told == ["The fee is 80."] * 2
    assert len(upstream.bodies) == 1


def test_a_stream_carries_no_usage_that_nobody_asked_for(client):
    assert all(chunk.usage is None for chunk in chat(client, stream=True))


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_pass_and_are_never_replayed(client, upstream, stream):
    upstream.answer(CALLING)
    for _ in range(2):
        if stream:
            pieces = [c.choices[0] for c in chat(client, tools=[TOOL], stream=True) if c.choices]
            calls = [call for p in pieces for call in p.delta.tool_calls or ()]
            reasons = [p.finish_reason for p in pieces if p.finish_reason]
            assert reasons == ["tool_calls"]
        else:
            choice = chat(client, tools=[TOOL]).choices[0]
            calls = choice.message.tool_calls
            assert choice.finish_reason == "tool_calls"
        assert [(c.id, c.function.name, c.function.arguments) for c in calls] == [
            ("call_1", "get_fee", '{"day": 3}')
        ]
    assert len(upstream.bodies) == 2


def test_the_turn_after_a_tool_goes_out_as_it_came_and_is_not_replayed(client, upstream):
    turns = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "80"},
    ]
    for _ in range(2):
        chat(client, messages=turns, tools=[TOOL])
    assert [body["messages"] for body in upstream.bodies] == [turns, turns]


def test_structured_output_is_parsed_fresh_and_stored(client, upstream):
    upstream.answer(Reply(text='{"amount": 80}'))
    for _ in range(2):
        done = client.chat.completions.parse(model="fake", messages=USER, response_format=Fee)
        assert done.choices[0].message.parsed == Fee(amount=80)
    assert len(upstream.bodies) == 1
    assert upstream.bodies[0]["response_format"]["json_schema"]["name"] == "Fee"


def test_several_choices_pass_through_whole_and_are_not_stored(client, upstream):
    for _ in range(2):
        chat(client, n=2, logprobs=True)
    assert [body["n"] for body in upstream.bodies] == [2, 2]


def test_openai_continues_a_prompt(client, upstream):
    upstream.answer(Reply(text=" is 80.", pieces=[" is", " 80."]))
    prompt = {"model": "fake", "prompt": "The fee on day 3"}
    first, second = (client.completions.create(**prompt) for _ in range(2))
    assert (first.choices[0].text, second.choices[0].text) == (" is 80.", " is 80.")
    assert first.object == second.object == "text_completion"
    assert upstream.bodies == [prompt]
    pieces = client.completions.create(**prompt, stream=True)
    assert "".join(p.choices[0].text for p in pieces if p.choices) == " is 80."
    fresh = client.completions.create(
        model="fake", prompt="The fee on day 4", stream=True, stream_options={"include_usage": True}
    )
    told = list(fresh)
    assert "".join(p.choices[0].text for p in told if p.choices) == " is 80."
    assert told[-1].usage.total_tokens == 105


def test_a_chat_and_a_prompt_of_the_same_text_are_two_requests(client, upstream):
    chat(client)
    client.completions.create(model="fake", prompt=USER[0]["content"])
    assert len(upstream.bodies) == 2


def test_token_ids_and_several_prompts_pass_through(client, upstream):
    for prompt in ([1, 2, 3], ["one", "two"]):
        for _ in range(2):
            client.completions.create(model="fake", prompt=prompt)
    assert [b["prompt"] for b in upstream.bodies] == [[1, 2, 3]] * 2 + [["one", "two"]] * 2


def test_models_are_listed(client):
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").id == "fake"
    with pytest.raises(NotFoundError):
        client.models.retrieve("other")
    with pytest.raises(NotFoundError):
        chat(client, model="other")


def test_langchain_asks_streams_calls_tools_and_reads_structure(gateway, upstream):
    def model(**options: Any) -> ChatOpenAI:
        return ChatOpenAI(
            model="fake",
            base_url=f"{gateway.url}/v1",
            api_key=gateway.keys["acme"],
            max_retries=0,
            **options,
        )

    assert [model().invoke("What is the fee?").content for _ in range(2)] == ["The fee is 80."] * 2
    assert "".join(c.content for c in model().stream("What is the fee?")) == "The fee is 80."
    assert len(upstream.bodies) == 1
    upstream.answer(CALLING)
    assert model().bind_tools([TOOL]).invoke("Fee?").tool_calls[0]["args"] == {"day": 3}
    whole = None
    for piece in model(streaming=True).bind_tools([TOOL]).stream("Fee?"):
        whole = piece if whole is None else whole + piece
    assert whole.tool_calls[0]["args"] == {"day": 3}
    assert whole.response_metadata["finish_reason"] == "tool_calls"
    upstream.answer(Reply(text='{"amount": 80}'))
    reader = model().with_structured_output(Fee, method="json_schema")
    assert [reader.invoke("Which fee?") for _ in range(2)] == [Fee(amount=80)] * 2


def test_curl_asks_and_streams(gateway):
    body = json.dumps({"model": "fake", "messages": USER})
    command = [
        "curl", "-sS", "-i", f"{gateway.url}/v1/chat/completions",
        "-H", "Content-Type: application/json",
        "-H", f"Authorization: Bearer {gateway.keys['acme']}",
    ]  # fmt: skip
    first = subprocess.run([*command, "-d", body], capture_output=True, text=True, check=True)
    assert "HTTP/1.1 200" in first.stdout
    assert "cache-status: ragcache; fwd=miss" in first.stdout
    streamed = json.dumps({"model": "fake", "messages": USER, "stream": True})
    second = subprocess.run([*command, "-d", streamed], capture_output=True, text=True, check=True)
    assert "cache-status: ragcache; hit; ttl=" in second.stdout
    assert second.stdout.rstrip().endswith("data: [DONE]")


NODE = Path(__file__).with_name("client.mjs")


def test_openai_for_node_asks_streams_calls_tools_and_reads_structure(gateway, upstream):
    """Needs node, and the npm package `openai` in the folder that RAGCACHE_NODE_MODULES names."""
    upstream.script = lambda body: (
        CALLING
        if body.get("tools")
        else Reply(text='{"amount": 80}' if body.get("response_format") else "The fee is 80.")
    )
    node = shutil.which("node")
    assert node
    done = subprocess.run(
        [node, str(NODE), os.environ["RAGCACHE_NODE_MODULES"]],
        env={
            "OPENAI_BASE_URL": f"{gateway.url}/v1",
            "OPENAI_API_KEY": gateway.keys["acme"],
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "asked": ["The fee is 80."] * 2,
        "streamed": "The fee is 80.",
        "called": '{"day": 3}',
        "called_streaming": '{"day": 3}',
        "amount": 80,
        "models": ["fake"],
        "refused": 401,
    }
    assert len(upstream.bodies) == 4
