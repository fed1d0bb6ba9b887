"""The shared engine: what the rest of the suite may rely on."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import msgspec
import pytest
import zmq
from openai import OpenAI

from ragcache.testing import Engine

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

_SUBJECTS = ("router", "ledger", "harbour", "turbine", "archive", "orchard", "viaduct", "kiln")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One streamed call as its caller saw it."""

    prompt_tokens: int
    cached_tokens: int
    ttft_s: float
    text: str


def prompt(tag: str, sentences: int = 60) -> str:
    """A text of about 17 tokens a sentence that no other tag begins alike."""
    lines = (
        f"{tag} note {number}: the {_SUBJECTS[number % len(_SUBJECTS)]} holds "
        f"{number * 7 % 97} boxes of paper."
        for number in range(sentences)
    )
    return "\n".join(lines)


def ask(client: OpenAI, context: str, question: str, *, salt: str, tokens: int = 1) -> Served:
    begun, first, text, usage = time.perf_counter(), None, "", None
    stream = client.chat.completions.create(
        model="smollm2",
        messages=[{"role": "user", "content": f"{context}\n\n{question}"}],
        max_tokens=tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"cache_salt": salt},
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            first = first or time.perf_counter() - begun
            text += chunk.choices[0].delta.content
        usage = chunk.usage or usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return Served(
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.prompt_tokens_details.cached_tokens or 0,
        ttft_s=first or 0.0,
        text=text,
    )


def test_same_salt_hits_every_full_block_and_another_salt_none(
    openai_client: OpenAI, cache_salt: str
) -> None:
    context = prompt("salt", sentences=20)
    cold = ask(openai_client, context, "Who holds paper?", salt=cache_salt)
    warm = ask(openai_client, context, "Who holds paper?", salt=cache_salt)
    foreign = ask(openai_client, context, "Who holds paper?", salt=f"{cache_salt}-other")
    assert cold.cached_tokens == 0
    # The last prompt token is always computed, so a prompt of whole blocks loses one.
    assert warm.cached_tokens == (warm.prompt_tokens - 1) // 32 * 32 > 0
    assert foreign.cached_tokens == 0


def test_text_is_the_same_cold_and_on_a_prefix_hit(openai_client: OpenAI, cache_salt: str) -> None:
    context = prompt("text", sentences=20)
    cold = ask(openai_client, context, "Which one is named first?", salt=cache_salt, tokens=12)
    warm = ask(openai_client, context, "Which one is named first?", salt=cache_salt, tokens=12)
    assert warm.cached_tokens > 0
    assert warm.text == cold.text != ""


def test_cached_tokens_in_usage_equal_the_engines_own_counter(
    vllm_engine: Engine, openai_client: OpenAI, cache_salt: str
) -> None:
    before = vllm_engine.counters()
    context = prompt("counter", sentences=20)
    calls = [
        ask(openai_client, context, question, salt=cache_salt)
        for question in ("First?", "Is another one second?", "First?")
    ]
    after = vllm_engine.counters()
    hits = after["vllm:prefix_cache_hits_total"] - before["vllm:prefix_cache_hits_total"]
    queries = after["vllm:prefix_cache_queries_total"] - before["vllm:prefix_cache_queries_total"]
    assert sum(call.cached_tokens for call in calls) == hits > 0
    assert sum(call.prompt_tokens for call in calls) == queries


def test_first_token_comes_at_least_five_times_sooner_on_a_prefix_hit(
    openai_client: OpenAI, cache_salt: str
) -> None:
    ask(openai_client, "warm-up", "Hello?", salt=cache_salt)
    ratios = []
    for number in range(5):
        context = prompt(f"pair {number}", sentences=50)
        cold = ask(openai_client, context, "Who holds paper?", salt=cache_salt)
        warm = ask(openai_client, context, "How many boxes are there?", salt=cache_salt)
        assert 800 <= cold.prompt_tokens <= 1400
        assert cold.cached_tokens < 64 < warm.cached_tokens
        ratios.append(cold.ttft_s / warm.ttft_s)
    print("TTFT cold / prefix hit:", [round(ratio, 1) for ratio in ratios])
    assert statistics.median(ratios) >= 5


def test_reset_forgets_what_was_cached(
    vllm_engine: Engine, openai_client: OpenAI, cache_salt: str
) -> None:
    context = prompt("reset", sentences=20)
    ask(openai_client, context, "Who?", salt=cache_salt)
    vllm_engine.reset_prefix_cache()
    assert ask(openai_client, context, "Who?", salt=cache_salt).cached_tokens == 0


def test_stored_blocks_are_published_as_events(
    vllm_engine: Engine, openai_client: OpenAI, cache_salt: str
) -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.linger = 0
        socket.connect(vllm_engine.options.kv_events)
        socket.subscribe("kv")
        # A subscription reaches the publisher a moment after it was made: ask until one arrives.
        for attempt in range(20):
            ask(openai_client, prompt(f"{attempt}", sentences=4), "Who?", salt=cache_salt)
            if socket.poll(200):
                break
        topic, _sequence, payload = socket.recv_multipart(zmq.NOBLOCK)
    assert topic == b"kv"
    _timestamp, events, *_ = msgspec.msgpack.decode(payload)
    assert "BlockStored" in {event["type"] for event in events}
