"""An OpenAI-compatible server: what is sent, how its faults are told, when a call is repeated."""

from __future__ import annotations

import asyncio
import time

import pytest
from openai import AsyncOpenAI

from ragcache.errors import TargetError
from ragcache.targets.openai import OpenAITarget
from ragcache.types import Call, Message, Usage
from tests.doubles.brain import Brain
from tests.doubles.upstream import Reply, StrictDeepSeek, StrictOpenAI, Upstream, serving

CALL = Call(model="fake", messages=(Message(role="user", content="What is the fee?"),))


async def streamed(target: OpenAITarget, call: Call = CALL):
    return [chunk async for chunk in target.stream(call)]


async def both(target: OpenAITarget, call: Call = CALL):
    """The completion by call and by stream."""
    return await target.complete(call), (await streamed(target, call))[-1].completion


async def test_a_stream_and_a_whole_answer_say_the_same(target, upstream):
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    usage |= {"prompt_tokens_details": {"cached_tokens": 64, "created_cache_tokens": 32}}
    upstream.answer(Reply(text="The fee is 80.", pieces=["The fee", " is", " 80."], usage=usage))
    whole, collected = await both(target())
    assert whole.text == collected.text == "The fee is 80."
    assert whole.finish_reason == collected.finish_reason == "stop"
    assert (
        whole.usage
        == collected.usage
        == Usage(input_tokens=100, cached_tokens=64, cache_write_tokens=32, output_tokens=5)
    )
    assert collected.id == whole.id == "chatcmpl-1"
    texts = [chunk.text for chunk in await streamed(target()) if chunk.text]
    assert texts == ["The fee", " is", " 80."]


async def test_tools_and_structured_output_pass_through():
    tool = {
        "name": "rate",
        "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}},
    }
    with serving(Brain()) as brain:
        target = OpenAITarget(model="fake", base_url=brain.base_url)
        call = Call(
            model="fake",
            messages=CALL.messages,
            tools=({"type": "function", "function": tool},),
            params={"tool_choice": "auto"},
        )
        whole, collected = await both(target, call)
        for found in (whole, collected):
            assert found.finish_reason == "tool_calls"
            (made,) = found.tool_calls
            assert made["function"] == {"name": "rate", "arguments": '{"days": 3}'}
        form = {"type": "json_schema", "json_schema": {"name": "r", "schema": tool["parameters"]}}
        answers = await both(
            target, Call(model="m", messages=CALL.messages, params={"response_format": form})
        )
        assert [a.text for a in answers] == ['{"days": 3}'] * 2
        assert brain.bodies[-1]["response_format"] == form
        await target.close()


@pytest.mark.parametrize(
    ("double", "provider", "usage"),
    [
        (StrictOpenAI, "openai", Usage(input_tokens=100, cached_tokens=0, output_tokens=5)),
        (StrictDeepSeek, "deepseek", Usage(input_tokens=100, cached_tokens=64, output_tokens=5)),
    ],
)
async def test_strict_hosts_accept_the_bodies_and_their_usage_is_read(double, provider, usage):
    with serving(double()) as host:
        target = OpenAITarget(model="m", base_url=host.base_url, provider=provider)
        call = Call(
            model="gpt-5.6",
            messages=CALL.messages,
            params={"temperature": 0.2, "cache_salt": "x"},
            cache_salt="s" * 43,
            prompt_cache_key="k",
        )
        for found in await both(target, call):
            assert found.usage == usage
        assert [("prompt_cache_key" in b) for b in host.bodies] == [provider == "openai"] * 2
        await target.close()


async def test_settings_headers_are_sent(target, upstream):
    await target(headers={"X-Team": "acme"}, api_key="sk-1").complete(CALL)
    assert upstream.headers[0]["x-team"] == "acme"
    assert upstream.headers[0]["authorization"] == "Bearer sk-1"


# --- faults --------------------------------------------------------------------------------------


async def test_an_error_keeps_its_own_type_status_and_body(target, upstream):
    error = {"message": "context too long", "type": "invalid_request_error", "code": "too_long"}
    upstream.answer(Reply(status=400, error=error))
    for ask in (target().complete(CALL), streamed(target())):
        with pytest.raises(TargetError, match="context too long") as failed:
            await ask
        assert failed.value.status == 400
        assert failed.value.kind == "invalid_request_error"
        assert failed.value.body == error
    assert len(upstream.bodies) == 2  # never repeated


@pytest.mark.parametrize("status", [429, 503, 529])
async def test_a_busy_server_is_asked_again(target, upstream, status):
    upstream.answer(Reply(status=status), Reply(status=status), Reply())
    whole = await target().complete(CALL)
    assert whole.text == "The fee is 80."
    assert len(upstream.bodies) == 3
    upstream.answer(Reply(status=status), Reply())
    assert (await streamed(target()))[-1].completion.text == "The fee is 80."


async def test_a_server_that_stays_busy_is_given_up_with_its_own_word(target, upstream):
    upstream.answer(Reply(status=429, error={"message": "slow", "type": "rate_limit_error"}))
    with pytest.raises(TargetError) as failed:
        await target(attempts=2).complete(CALL)
    assert (failed.value.status, failed.value.kind) == (429, "rate_limit_error")
    assert len(upstream.bodies) == 2


@pytest.mark.parametrize("status", [500, 502, 504, 408, 401])
async def test_what_may_have_been_computed_is_not_repeated(target, upstream, status):
    upstream.answer(Reply(status=status), Reply())
    with pytest.raises(TargetError) as failed:
        await target().complete(CALL)
    assert failed.value.status == status
    assert len(upstream.bodies) == 1


async def test_an_empty_account_is_not_asked_again(target, upstream):
    error = {"message": "no quota", "type": "insufficient_quota", "code": "insufficient_quota"}
    upstream.answer(Reply(status=429, error=error))
    with pytest.raises(TargetError, match="no quota"):
        await target().complete(CALL)
    assert len(upstream.bodies) == 1


async def test_the_pause_that_a_server_asks_for_is_kept_or_not_waited_for(target, upstream):
    upstream.answer(Reply(status=429, headers={"Retry-After": "1"}), Reply())
    begun = time.perf_counter()
    await target().complete(CALL)
    assert time.perf_counter() - begun >= 1.0
    upstream.answer(Reply(status=429, headers={"Retry-After": "3600"}))
    with pytest.raises(TargetError) as failed:
        await target().complete(CALL)
    assert failed.value.retry_after_s == 3600
    assert len(upstream.bodies) == 3


async def test_a_client_of_ones_own_does_its_own_retries(upstream):
    upstream.answer(Reply(status=503))
    async with AsyncOpenAI(base_url=upstream.base_url, api_key="k", max_retries=0) as client:
        with pytest.raises(TargetError):
            await OpenAITarget(model="fake", client=client).complete(CALL)
    assert len(upstream.bodies) == 1


async def test_a_timeout_is_told_and_not_repeated(target, upstream):
    upstream.answer(Reply(delay_s=0.6))
    for ask in (target(timeout_s=0.2).complete(CALL), streamed(target(timeout_s=0.2))):
        with pytest.raises(TargetError, match="in time") as failed:
            await ask
        assert failed.value.kind == "timeout"
    assert len(upstream.bodies) == 2


async def test_a_stream_that_stalls_is_given_up(target, upstream):
    upstream.answer(Reply(pieces=["a", "b"], piece_delay_s=0.6))
    with pytest.raises(TargetError, match="in time"):
        await streamed(target(timeout_s=0.2))


async def test_a_stream_that_is_cut_is_an_error_and_not_repeated(target, upstream):
    upstream.answer(Reply(pieces=["a", "b", "c"], break_after=1, piece_delay_s=0.05))
    with pytest.raises(TargetError) as failed:
        await streamed(target())
    assert failed.value.kind == "connection"
    assert len(upstream.bodies) == 1


async def test_an_error_inside_a_stream_is_an_error(target, upstream):
    upstream.answer(
        Reply(pieces=["a"], error_inside={"message": "CUDA out of memory", "type": "oom"})
    )
    with pytest.raises(TargetError, match="CUDA out of memory") as failed:
        await streamed(target())
    assert failed.value.kind == "oom"


async def test_a_server_that_hangs_up_is_not_asked_again(target):
    asked = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += "POST" in (await reader.readuntil(b"\r\n\r\n")).decode()
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        for ask in (target(base_url=url).complete(CALL), streamed(target(base_url=url))):
            with pytest.raises(TargetError, match="cannot be reached") as failed:
                await ask
            assert failed.value.kind == "connection"
    assert asked == 2


async def test_nobody_there_is_told_after_the_attempts(target):
    begun = time.perf_counter()
    with pytest.raises(TargetError, match="cannot be reached") as failed:
        await target(base_url="http://127.0.0.1:9/v1", attempts=2).complete(CALL)
    assert failed.value.kind == "connection"
    assert time.perf_counter() - begun >= 0.1, "there was a second attempt, after a pause"


# --- leaving -------------------------------------------------------------------------------------


async def gone(upstream: Upstream) -> None:
    async with asyncio.timeout(10):
        while upstream.closed < upstream.opened or not upstream.opened:
            await asyncio.sleep(0.01)


async def test_leaving_a_stream_closes_the_upstream(target, upstream):
    upstream.answer(Reply(pieces=["x"] * 1000, piece_delay_s=0.02))
    pieces = target().stream(CALL)
    await anext(pieces)
    await pieces.aclose()
    await gone(upstream)
    assert upstream.finished_at is not None


async def test_cancelling_a_stream_closes_the_upstream(target, upstream):
    upstream.answer(Reply(pieces=["x"] * 1000, piece_delay_s=0.02))
    task = asyncio.create_task(streamed(target()))
    while not upstream.opened:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(upstream)
