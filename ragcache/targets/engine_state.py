"""What a vLLM server says of itself on `/metrics`, and what follows from it.

Names: vLLM 0.32, v1/metrics/loggers.py; counters carry `_total` on the wire, and a `_created`
time of their own, by which a restarted engine is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_SAMPLE = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)", re.MULTILINE
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """An engine at one moment; counters count since it started. None is unknown, never zero.

    Args:
        block_size: Tokens of a KV block: reuse is rounded down to it.
        kv_blocks: Number of blocks. kv_tokens: How many tokens they hold.
        prefix_caching: Whether the engine reuses prefixes at all.
        kv_usage: Share of the blocks that running requests hold, 0 to 1.
        running, waiting: Requests.
        queried_tokens, hit_tokens: Looked up in the prefix cache, and found there.
        offload_hit_tokens: Found in a slower tier.
        prompt_tokens: Of all prompts.
        preemptions: Requests put back because no block was free.
        evictions: Blocks taken from the prefix cache, where the engine samples them
            (`--kv-cache-metrics`).
        started_at: When its counters were made, in seconds since 1970.
    """

    block_size: int | None = None
    kv_blocks: int | None = None
    kv_tokens: int | None = None
    prefix_caching: bool | None = None
    kv_usage: float | None = None
    running: int | None = None
    waiting: int | None = None
    queried_tokens: int | None = None
    hit_tokens: int | None = None
    offload_hit_tokens: int | None = None
    prompt_tokens: int | None = None
    preemptions: int | None = None
    evictions: int | None = None
    started_at: float | None = None

    @property
    def hit_rate(self) -> float | None:
        """Share of the tokens looked up that were found, None before the first request."""
        if not self.queried_tokens or self.hit_tokens is None:
            return None
        return self.hit_tokens / self.queried_tokens


def read_metrics(text: str) -> EngineState:
    """Read the Prometheus text of a vLLM server; what it does not say is None."""
    sums: dict[str, float] = {}
    config: Mapping[str, str] = {}
    for sample in _SAMPLE.finditer(text):
        name = sample["name"]
        if name == "vllm:cache_config_info":
            config = dict(_LABEL.findall(sample["labels"] or ""))
        elif name.startswith("vllm:"):
            sums[name] = sums.get(name, 0.0) + float(sample["value"])

    def counted(name: str) -> int | None:
        return int(sums[name]) if name in sums else None

    return EngineState(
        block_size=_told(config, "block_size", int),
        kv_blocks=_told(config, "num_gpu_blocks", int),
        kv_tokens=_told(config, "kv_cache_size_tokens", int),
        prefix_caching=_told(config, "enable_prefix_caching", lambda told: told == "True"),
        kv_usage=sums.get("vllm:kv_cache_usage_perc"),
        running=counted("vllm:num_requests_running"),
        waiting=counted("vllm:num_requests_waiting"),
        queried_tokens=counted("vllm:prefix_cache_queries_total"),
        hit_tokens=counted("vllm:prefix_cache_hits_total"),
        offload_hit_tokens=counted("vllm:external_prefix_cache_hits_total"),
        prompt_tokens=counted("vllm:prompt_tokens_total"),
        preemptions=counted("vllm:num_preemptions_total"),
        evictions=counted("vllm:kv_block_lifetime_seconds_count"),
        started_at=sums.get("vllm:prefix_cache_queries_created"),
    )


def restarted(before: EngineState, after: EngineState) -> bool:
    """Return whether an engine is in another life than before, its cache being empty then."""
    if before.started_at is not None and after.started_at is not None:
        return before.started_at != after.started_at
    counts = ((before.queried_tokens, after.queried_tokens),)
    return any(old is not None and new is not None and new < old for old, new in counts)


def _told(config: Mapping[str, str], name: str, read: Callable[[str], T]) -> T | None:
    value = config.get(name)
    return None if value in (None, "None") else read(str(value))
