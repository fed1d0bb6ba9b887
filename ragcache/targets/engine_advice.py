"""What an engine's figures advise: its KV memory is shared by cached prefixes and running requests.

Pure: figures in, sentences out.
"""

from __future__ import annotations

from .engine_state import EngineState

#: Above this share running requests leave little for cached prefixes.
_FULL = 0.90
#: Below this share most prefixes are computed again, once enough was asked to tell.
_FEW_HITS = 0.30
_ENOUGH_TOKENS = 10_000


def is_fit(state: EngineState) -> bool:
    """Return whether an engine can reuse prefixes at all."""
    return state.prefix_caching is not False


def figures(state: EngineState) -> str:
    """Return the figures of an engine in one line; what it does not tell is left out."""
    told = [
        _share("KV usage", state.kv_usage),
        _share("prefix hit rate", state.hit_rate),
        _count("KV tokens", state.kv_tokens),
        _count("block size", state.block_size),
        _count("running", state.running),
        _count("waiting", state.waiting),
        _count("preemptions", state.preemptions),
        _count("sampled evictions", state.evictions),
        _count("tokens from slower tiers", state.offload_hit_tokens or None),
    ]
    return ", ".join(text for text in told if text) or "no figures of vLLM"


def advice(state: EngineState) -> tuple[str, ...]:
    """Return what to change, the most pressing first; nothing where all is well."""
    found = []
    if state.prefix_caching is False:
        found.append("prefix caching is off: start vLLM with --enable-prefix-caching")
    if state.preemptions:
        found.append(
            f"{state.preemptions} times a running request was put back for want of KV blocks and "
            "computed again: lower max_num_seqs, or make room (kv_cache_dtype fp8, "
            "gpu_memory_utilization, preset long_context)"
        )
    if state.kv_usage is not None and state.kv_usage > _FULL:
        found.append(
            f"running requests hold {state.kv_usage:.0%} of the KV blocks, cached prefixes are "
            "pushed out: offload them (kv_offloading_size), or give the cache more memory"
        )
    if _finds_little(state):
        found.append(_why_little(state))
    if state.waiting and not state.preemptions and (state.kv_usage or 0) <= _FULL:
        found.append(f"{state.waiting} requests wait while KV blocks are free: raise max_num_seqs")
    return tuple(found)


def _finds_little(state: EngineState) -> bool:
    rate = state.hit_rate
    return rate is not None and rate < _FEW_HITS and (state.queried_tokens or 0) >= _ENOUGH_TOKENS


def _why_little(state: EngineState) -> str:
    told = f"only {state.hit_rate:.0%} of the prompt tokens were found in the prefix cache"
    if state.evictions:
        return f"{told}, and blocks are evicted: the cache is too small for the documents in use"
    if state.evictions is None:
        return f"{told}: see `ragcache lint`, and start vLLM with --kv-cache-metrics for evictions"
    return f"{told}, and nothing is evicted: the prompts differ early, see `ragcache lint`"


def _share(name: str, value: float | None) -> str:
    return "" if value is None else f"{name} {value:.0%}"


def _count(name: str, value: int | None) -> str:
    return "" if value is None else f"{name} {value:,}"
