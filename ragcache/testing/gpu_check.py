"""What can only be seen on a GPU: run by hand, within eight minutes, on a machine that has one.

    make gpu-check                       (or: python -m ragcache.testing.gpu_check --model NAME)

Each phase is an engine in a process of its own, with a preset of `engine_options`; what each of
them measured is printed as a table and as JSON. `--rehearse` runs the first phase on CPU with
short prompts: it shows that the script works, not what a GPU does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..targets.engine_options import Preset
from ..targets.vllm_engine import VLLMEngineTarget, platform_here
from ..types import Call, Message
from .smollm import smollm_path

_LIMIT_S = 480.0
_PAIRS = 5
_SUBJECTS = ("router", "ledger", "harbour", "turbine", "archive", "orchard", "viaduct", "kiln")
_TOKENS_PER_LINE = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One engine and what is looked at.

    Args:
        name: For the table.
        preset: Its arguments.
        lengths: Of the prompts whose first token is timed, in tokens.
        blocks: Size of the engine's own KV cache, small enough to be filled.
        kv_dtype: What the KV cache must be made of; "" for whatever the model has.
        tiers: A prefix that was pushed out of it must be found in another tier; without tiers it
            must be gone, else it was never pushed out.
    """

    name: str
    preset: Preset
    lengths: tuple[int, ...] = (2000, 8000)
    blocks: int = 700
    kv_dtype: str = ""
    tiers: bool = False


PHASES = (
    Phase(name="balanced", preset="balanced"),
    Phase(name="long_context", preset="long_context", kv_dtype="fp8", tiers=True),
    Phase(name="many_tenants", preset="many_tenants", kv_dtype="fp8", tiers=True, lengths=(2000,)),
)
REHEARSAL = (Phase(name="rehearsal", preset="balanced", lengths=(200, 600), blocks=40),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """First tokens of cold prompts and of the same ones found again, in seconds."""

    tokens: int
    cold_s: float
    hit_s: float

    @property
    def ratio(self) -> float:
        """How many times sooner the first token comes on a hit."""
        return self.cold_s / self.hit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one phase saw; token counts as the engine reports them."""

    name: str
    start_s: float
    block_size: int
    kv_dtype: str
    prompt: int
    cached: int
    other_salt: int
    pushed_out: int
    timings: tuple[Timing, ...] = field(default=())


def faults(phase: Phase, seen: Seen) -> tuple[str, ...]:
    """Return what a phase should have shown and did not."""
    whole = (seen.prompt - 1) // seen.block_size * seen.block_size
    found = []
    if seen.cached != whole:
        found.append(f"{seen.cached} cached tokens of {seen.prompt}, expected {whole}")
    if seen.other_salt:
        found.append(f"another salt found {seen.other_salt} tokens")
    if phase.kv_dtype and not seen.kv_dtype.startswith(phase.kv_dtype):
        found.append(f"the KV cache is {seen.kv_dtype}, not {phase.kv_dtype}")
    if phase.tiers and not seen.pushed_out:
        found.append("a prefix that was pushed out of the GPU was not found in another tier")
    if not phase.tiers and seen.pushed_out:
        found.append(f"{seen.pushed_out} tokens were found of a prefix that others had pushed out")
    found += [
        f"at {t.tokens} tokens the first token came {t.ratio:.1f} times sooner, expected 1.5"
        for t in seen.timings
        if t.ratio < 1.5
    ]
    return tuple(found)


def prompt(name: str, tokens: int) -> str:
    """Return a text of about so many tokens that no other name begins alike."""
    lines = (
        f"{name} note {n}: the {_SUBJECTS[n % len(_SUBJECTS)]} holds {n * 7 % 97} boxes of paper."
        for n in range(max(1, tokens // _TOKENS_PER_LINE))
    )
    return "\n".join(lines)


# --- one phase, in a process of its own ----------------------------------------------------------


async def look(phase: Phase, model: str) -> Seen:
    """Start an engine and measure."""
    with tempfile.TemporaryDirectory(prefix="ragcache-gpu-") as folder:
        target = VLLMEngineTarget(
            model=model,
            preset=phase.preset,
            engine_args=_arguments(phase),
            kv_cpu_gib=2,
            kv_disk=folder,
            # On CPU the cache would else take most of the machine's memory, or refuse to start.
            environment={"VLLM_CPU_KVCACHE_SPACE": "1"},
        )
        begun_s = time.perf_counter()
        await target.start()
        start_s = time.perf_counter() - begun_s
        try:
            return await _measured(target, phase, start_s)
        finally:
            await target.close()


def _arguments(phase: Phase) -> dict[str, Any]:
    made = {"enforce_eager": True, "num_gpu_blocks_override": phase.blocks}
    on_cpu = {"dtype": "float32", "block_size": 32, "max_num_seqs": 4, "max_model_len": 1024}
    return made | on_cpu if platform_here() == "cpu" else made


async def _measured(target: VLLMEngineTarget, phase: Phase, start_s: float) -> Seen:
    await _asked(target, "warm-up", "w")
    text = prompt("salt", phase.lengths[0])
    await _asked(target, text, "a")
    _, again, size = await _asked(target, text, "a")
    _, other, _ = await _asked(target, text, "b")
    timings = [await _timed(target, tokens) for tokens in phase.lengths]
    config = target.engine_config.cache_config
    fillers = config.kv_cache_size_tokens // phase.lengths[0] + 2
    pushed_out = await _pushed_out(target, text, fillers=fillers, tokens=phase.lengths[0])
    return Seen(
        name=phase.name,
        start_s=start_s,
        block_size=target.block_size or 0,
        kv_dtype=str(config.cache_dtype),
        prompt=size,
        cached=again,
        other_salt=other,
        pushed_out=pushed_out,
        timings=tuple(timings),
    )


async def _timed(target: VLLMEngineTarget, tokens: int) -> Timing:
    cold, hit = [], []
    for pair in range(_PAIRS):
        text = prompt(f"pair {tokens} {pair}", tokens)
        cold.append((await _asked(target, text, "t"))[0])
        hit.append((await _asked(target, text, "t"))[0])
    return Timing(tokens=tokens, cold_s=statistics.median(cold), hit_s=statistics.median(hit))


async def _pushed_out(target: VLLMEngineTarget, text: str, *, fillers: int, tokens: int) -> int:
    """Return what is still found of a prompt once others have filled the engine's cache."""
    await _asked(target, text, "a")
    for number in range(fillers):
        await _asked(target, prompt(f"filler {number}", tokens), "a")
    return (await _asked(target, text, "a"))[1]


async def _asked(target: VLLMEngineTarget, text: str, salt: str) -> tuple[float, int, int]:
    """Return the time to the first token in seconds, cached and prompt tokens."""
    call = Call(
        model=target.model,
        messages=(Message(role="user", content=f"{text}\n\nWho holds paper?"),),
        params={"max_tokens": 4, "temperature": 0},
        cache_salt=salt * 43,
    )
    begun_s, first_s, completion = time.perf_counter(), 0.0, None
    async for chunk in target.stream(call):
        first_s = first_s or time.perf_counter() - begun_s
        completion = chunk.completion or completion
    usage = completion.usage if completion else None
    if usage is None or usage.cached_tokens is None or usage.input_tokens is None:
        raise RuntimeError("the engine told no usage")
    return first_s, usage.cached_tokens, usage.input_tokens


# --- all phases ----------------------------------------------------------------------------------


def run(phases: Sequence[Phase], model: str, *, limit_s: float = _LIMIT_S) -> int:
    """Run the phases one after the other; return the exit code: 0 where all is as it should be."""
    until_s = time.monotonic() + limit_s
    wrong: dict[str, Sequence[str]] = {}
    for phase in phases:
        seen = _apart(phase, model, timeout_s=max(1.0, until_s - time.monotonic()))
        wrong[phase.name] = [seen] if isinstance(seen, str) else faults(phase, seen)
        if isinstance(seen, Seen):
            _say(table(seen))
        for fault in wrong[phase.name]:
            _say(f"  FAIL {phase.name}: {fault}")
    _say("all as it should be" if not any(wrong.values()) else "not as it should be")
    return 1 if any(wrong.values()) else 0


def _apart(phase: Phase, model: str, *, timeout_s: float) -> Seen | str:
    command = [sys.executable, "-m", __spec__.name, "--model", model, "--phase", phase.name]
    try:
        done = subprocess.run(  # noqa: S603 -- our own command, no shell
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {timeout_s:.0f} s"
    line = next((x for x in done.stdout.splitlines() if x.startswith("{")), "")
    return read(json.loads(line)) if line else f"ended with {done.returncode}: {done.stderr[-800:]}"


def read(values: Mapping[str, Any]) -> Seen:
    """Return what a phase printed."""
    timings = tuple(Timing(**timing) for timing in values["timings"])
    return Seen(**{**values, "timings": timings})


def table(seen: Seen) -> str:
    """Return what a phase saw, for a person."""
    started = f"started in {seen.start_s:.0f} s, blocks of {seen.block_size} tokens"
    again = f"found again {seen.cached} of {seen.prompt} tokens"
    rows = [
        f"{seen.name}: {started}, KV {seen.kv_dtype}",
        f"  {again}, with another salt {seen.other_salt}, once pushed out {seen.pushed_out}",
    ]
    rows += [
        f"  first token at {t.tokens} tokens: cold {t.cold_s * 1e3:.0f} ms, found again "
        f"{t.hit_s * 1e3:.0f} ms, {t.ratio:.1f} times sooner"
        for t in seen.timings
    ]
    return "\n".join(rows)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(description="Check ragcache on a GPU.")
    parser.add_argument("--model", default="", help="Name or folder; a small one if none is given.")
    parser.add_argument("--rehearse", action="store_true", help="On CPU, with short prompts.")
    parser.add_argument("--phase", default="", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    model = given.model or str(smollm_path())
    if given.phase:
        phase = next(p for p in (*PHASES, *REHEARSAL) if p.name == given.phase)
        _say(json.dumps(asdict(asyncio.run(look(phase, model)))))
        return 0
    if not given.rehearse and platform_here() == "cpu":
        _say("no GPU that vLLM can use: nothing was checked (--rehearse runs it on CPU)")
        return 3
    return run(REHEARSAL if given.rehearse else PHASES, model)


if __name__ == "__main__":
    sys.exit(main())
