"""A user's script with an engine of its own: run by path, prints what it saw as JSON.

Usage: python in_process.py MODEL
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from prometheus_client import REGISTRY
from worlds import request

from ragcache.errors import ConfigError, TargetError
from ragcache.layout import LayoutPolicy
from ragcache.pipeline import Pipeline, Policies
from ragcache.targets.vllm_engine import VLLMEngineTarget
from ragcache.types import Call, Document, Message, Request

ARGUMENTS = {
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": 32,
    "max_model_len": 4096,
    "max_num_seqs": 4,
    "enable_auto_tool_choice": True,
    "tool_call_parser": "hermes",
}
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
SCHEMA = {
    "type": "object",
    "properties": {"boxes": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["boxes"],
}
TOOL = {"type": "function", "function": {"name": "count", "parameters": SCHEMA}}


def call(text: str, *, tokens: int = 1, **fields: Any) -> Call:
    params = {"max_tokens": tokens, "temperature": 0, **fields.pop("params", {})}
    return Call(
        model=fields.pop("model"),
        messages=(Message(role="user", content=text),),
        params=params,
        **fields,
    )


async def refusals(model: str) -> dict[str, str]:
    """What is refused, in words, before the engine starts."""
    told = {}
    for name, wrong in {
        "unknown": {"blok_size": 32},
        "block": {"block_size": 16},
        "value": {"kv_cache_dtype": "float7"},
        "offload": {"kv_offloading_size": 4},
    }.items():
        target = VLLMEngineTarget(
            model=model, engine_args={**ARGUMENTS, **wrong}, environment=ENVIRONMENT
        )
        begun = time.perf_counter()
        try:
            await target.start()
        except ConfigError as error:
            told[name] = str(error)
        told[f"{name}_s"] = time.perf_counter() - begun
    return told


async def reuse(target: VLLMEngineTarget) -> dict[str, Any]:
    text = "\n".join(f"note {n}: the harbour holds {n * 7 % 97} boxes of paper." for n in range(20))
    seen = {}
    for name, salt in (("cold", "A"), ("again", "A"), ("other", "B"), ("none", None)):
        begun = time.perf_counter()
        completion = await target.complete(
            call(f"{text}\nWho?", model=target.model, cache_salt=salt and salt * 43)
        )
        seen[name] = {
            "prompt": completion.usage.input_tokens,
            "cached": completion.usage.cached_tokens,
            "predicted": completion.predicted_tokens,
            "seconds": time.perf_counter() - begun,
        }
    return seen


def counter(name: str) -> int:
    """What the engine counted in this process since it started."""
    samples = (sample for metric in REGISTRY.collect() for sample in metric.samples)
    return int(sum(sample.value for sample in samples if sample.name == f"vllm:{name}_total"))


async def counted(pipeline: Pipeline, asked: Request) -> dict[str, int | None]:
    """Tokens as the answer and as the engine's own counters tell them, of one request."""
    hits, looked_up = counter("prefix_cache_hits"), counter("prefix_cache_queries")
    usage = (await pipeline.answer(asked)).usage
    # The engine counts a step just after it has handed its tokens out.
    await asyncio.sleep(0.3)
    return {
        "cached": usage.cached_tokens,
        "prompt": usage.input_tokens,
        "hits": counter("prefix_cache_hits") - hits,
        "looked_up": counter("prefix_cache_queries") - looked_up,
    }


async def differences(target: VLLMEngineTarget) -> dict[str, dict[str, int | None]]:
    """What is found again of a prompt after one change in it."""
    kept = Pipeline(
        target=target,
        salt_secret=b"secret of the differences",
        policies=Policies(layout=LayoutPolicy(ordering="retrieved")),
    )
    asked = request("acme", "a", "b", "c")
    async with kept:
        return {
            name: await counted(kept, changed)
            for name, changed in {
                "cold": asked,
                "again": asked,
                "other_tenant": asked.replace(tenant="globex"),
                "swapped": request("acme", "a", "c", "b"),
                "begun_otherwise": request("acme", "b", "a", "c"),
                "one_character": asked.replace(system="!" + asked.system),
            }.items()
        }


async def answers(target: VLLMEngineTarget) -> dict[str, Any]:
    asked = call("What is the capital of France?", tokens=12, model=target.model)
    whole = await target.complete(asked)
    chunks = [chunk async for chunk in target.stream(asked)]
    form = {"type": "json_schema", "json_schema": {"name": "boxes", "schema": SCHEMA}}
    structured = await target.complete(
        call("How many boxes?", tokens=24, model=target.model, params={"response_format": form})
    )
    choice = {"type": "function", "function": {"name": "count"}}
    tools = {
        "model": target.model,
        "tools": (TOOL,),
        "params": {"tool_choice": choice},
        "tokens": 64,
    }
    called = await target.complete(call("Count the boxes.", **tools))
    streamed = [c async for c in target.stream(call("Count the boxes.", **tools))][-1].completion
    return {
        "whole": whole.text,
        "finish": whole.finish_reason,
        "pieces": [chunk.text for chunk in chunks if chunk.text],
        "usage": chunks[-1].completion.usage.input_tokens == whole.usage.input_tokens,
        "tokens": len(await target.tokenize(asked)) == whole.usage.input_tokens,
        "structured": structured.text,
        "called": [dict(c["function"]) for c in called.tool_calls],
        "streamed": [dict(c["function"]) for c in streamed.tool_calls],
    }


async def faults(target: VLLMEngineTarget) -> dict[str, Any]:
    told = {}
    for name, asked in {
        "too_long": call("word " * 5000, model=target.model),
        "malformed": call("x", model=target.model, params={"temperature": "hot"}),
        "model": call("x", model="another"),
    }.items():
        for way in ("complete", "stream"):
            try:
                if way == "complete":
                    await target.complete(asked)
                else:
                    [chunk async for chunk in target.stream(asked)]
            except TargetError as error:
                told[f"{name}_{way}"] = [error.status, error.kind]
    stream = target.stream(call("Count to a thousand.", tokens=2000, model=target.model))
    await anext(stream)
    await stream.aclose()
    await asyncio.sleep(0.5)
    told["left_running"] = target._engine.get_num_unfinished_requests()
    return told


async def trace(target: VLLMEngineTarget, count: int) -> list[list[int | None]]:
    """Predicted and served tokens of questions over two sets of documents."""
    pipeline = Pipeline(target=target, salt_secret=b"secret of the script")
    pairs = []
    for number in range(count):
        documents = tuple(
            Document(
                text="\n".join(
                    f"{number % 2}{part} {n}: the kiln holds {n} boxes." for n in range(8)
                ),
                source=f"{number % 2}{part}.md",
            )
            for part in "abc"
        )
        request = Request(
            tenant="acme",
            question=f"Who holds boxes ({number})?",
            documents=documents[number % 3 :] + documents[: number % 3],
            params={"max_tokens": 1, "temperature": 0},
        )
        reuse = (await pipeline.answer(request)).reuse
        pairs.append([reuse.predicted_tokens, reuse.served_tokens])
    await pipeline.close()
    return pairs


async def main(model: str, count: int) -> None:
    seen: dict[str, Any] = {"refused": await refusals(model)}
    target = VLLMEngineTarget(
        model=model, engine_args=ARGUMENTS, environment=ENVIRONMENT, mirror=True
    )
    lost: list[int] = []
    target.watch(lambda: lost.append(1))
    begun = time.perf_counter()
    await target.start()
    seen["start_s"] = time.perf_counter() - begun
    seen["block_size"] = target.block_size
    seen["reuse"] = await reuse(target)
    seen["differences"] = await differences(target)
    seen["answers"] = await answers(target)
    seen["faults"] = await faults(target)
    seen["trace"] = await trace(target, count)
    seen["lost"] = len(lost)
    begun = time.perf_counter()
    await target.close()
    seen["close_s"] = time.perf_counter() - begun
    print("SEEN" + json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
