"""Arguments of a vLLM engine: presets for its cache memory, checks, and the command line.

Cache and running requests share one memory: what running requests need is taken from cached
prefixes, and where that is not enough a request is put back and computed again (a preemption). A
smaller KV data type and slower tiers behind the GPU's memory make room for both.

Names and limits: vLLM 0.32, config/cache.py, docs/features/kv_offloading_usage.md (offloading on
CUDA, ROCm and XPU only); block sizes on CPU as measured, see `ragcache.testing.engine`.
"""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, get_args

from ..errors import ConfigError

Platform = Literal["cuda", "rocm", "xpu", "cpu"]
Preset = Literal["balanced", "long_context", "many_tenants"]

PRESETS: Final = get_args(Preset)
PLATFORMS: Final = get_args(Platform)

_GIB: Final = 1 << 30
#: Where vLLM can move KV blocks to CPU memory and disk.
_OFFLOADING: Final = frozenset({"cuda", "rocm", "xpu"})
#: KV data types at a byte a value, by platform: fp8 where the hardware computes with it.
_SMALL_KV: Final[Mapping[str, str]] = {"cuda": "fp8", "rocm": "fp8"}
#: The attention kernels on CPU.
_CPU_BLOCK: Final = 32

#: Always on: prefixes are reused, and each answer says how many tokens were.
_ALWAYS: Final[Mapping[str, Any]] = {
    "enable_prefix_caching": True,
    "enable_prompt_tokens_details": True,
}


def preset_arguments(
    preset: Preset, platform: Platform, *, cpu_gib: int = 16, disk_path: str = ""
) -> dict[str, Any]:
    """Return the engine arguments of a preset; what the platform cannot do is left out.

    `balanced`: the model's own KV data type, nine tenths of the memory. `long_context`: a KV
    value in one byte, prefixes moved to CPU memory, fewer requests at a time. `many_tenants`: as
    before with more requests at a time, and a third tier on disk, since each tenant's prefixes
    are kept apart and most of them wait.

    Args:
        preset: Which.
        platform: What the engine runs on.
        cpu_gib: CPU memory for prefixes, in GiB.
        disk_path: Folder for prefixes on disk; none is used where it is empty.

    Raises:
        ConfigError: There is no such preset.
    """
    if preset not in PRESETS:
        raise ConfigError(f"engine preset {preset!r} is unknown: use {', '.join(PRESETS)}")
    made: dict[str, Any] = {**_ALWAYS}
    if platform != "cpu":
        made["gpu_memory_utilization"] = 0.90 if preset == "balanced" else 0.92
    if preset == "balanced":
        return made
    made["max_num_seqs"] = 64 if preset == "long_context" else 256
    if platform in _SMALL_KV:
        made["kv_cache_dtype"] = _SMALL_KV[platform]
    if platform in _OFFLOADING:
        made |= _offloading(cpu_gib, disk_path if preset == "many_tenants" else "")
    return made


def _offloading(cpu_gib: int, disk_path: str) -> dict[str, Any]:
    if not disk_path:
        return {"kv_offloading_size": cpu_gib, "kv_offloading_backend": "native"}
    tiers = {
        "spec_name": "TieringOffloadingSpec",
        "cpu_bytes_to_use": cpu_gib * _GIB,
        "secondary_tiers": [{"type": "fs", "root_dir": disk_path}],
    }
    connector = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}
    return {"kv_transfer_config": {**connector, "kv_connector_extra_config": tiers}}


# --- checks ------------------------------------------------------------------------------------


def faults(
    arguments: Mapping[str, Any], *, platform: Platform, known: Collection[str]
) -> tuple[str, ...]:
    """Return what is wrong with engine arguments, in words; empty where nothing is.

    Args:
        arguments: By vLLM's names, with underscores.
        platform: What the engine runs on.
        known: Every name that vLLM knows; empty where it cannot be asked.
    """
    found = [_unknown(name, known) for name in arguments if known and name not in known]
    block, share = arguments.get("block_size"), arguments.get("gpu_memory_utilization")
    if platform == "cpu" and block is not None and block % _CPU_BLOCK:
        found.append(
            f"block_size {block}: vLLM on CPU computes attention in multiples of {_CPU_BLOCK}"
        )
    if share is not None and not 0 < share <= 1:
        found.append(f"gpu_memory_utilization {share}: it is a share, above 0 and at most 1")
    if arguments.get("enable_prefix_caching") is False:
        found.append("enable_prefix_caching is false: no prefix would ever be reused")
    if platform not in _OFFLOADING and _offloads(arguments):
        found.append(f"no KV offloading on {platform}: vLLM does it on CUDA, ROCm and XPU")
    small = str(arguments.get("kv_cache_dtype") or "auto")
    if small.startswith("fp8") and platform not in _SMALL_KV and platform != "xpu":
        found.append(f"kv_cache_dtype {small}: not on {platform}, leave it at auto")
    return tuple(found)


def _offloads(arguments: Mapping[str, Any]) -> bool:
    transfer = arguments.get("kv_transfer_config")
    connector = transfer.get("kv_connector") if isinstance(transfer, Mapping) else None
    return arguments.get("kv_offloading_size") is not None or connector == "OffloadingConnector"


def _unknown(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
    return f"vLLM has no engine argument {name!r}: did you mean {near[0]!r}?"


def known_arguments() -> frozenset[str]:
    """Return every argument of `vllm serve`, with underscores, from the vLLM that is installed.

    Empty where none is, or where its parser is not found.
    """
    try:
        return frozenset(vars(parsed_arguments(())))
    except ConfigError:
        return frozenset()


def parsed_arguments(flags: Sequence[str]) -> Any:
    """Return the namespace that vLLM's own parser makes of flags.

    Raises:
        ConfigError: vLLM is not installed or another one, or it refuses the flags.
    """
    return _parser().parse_args(list(flags))


@cache
def _parser() -> Any:
    with warnings.catch_warnings():
        # What vLLM's dependencies say of each other at import is nothing a user can change.
        warnings.simplefilter("ignore")
        try:
            from vllm.entrypoints.launchers.cli_args import make_arg_parser
            from vllm.utils.argparse_utils import FlexibleArgumentParser
        except ImportError as error:
            raise ConfigError(
                f"vLLM 0.32 is not installed ({error}): pip install vllm, or use a server"
            ) from error

        class Parser(FlexibleArgumentParser):  # type: ignore[misc]  # vLLM is not read by mypy
            """Says what is wrong instead of ending the process."""

            def error(self, message: str) -> Any:
                raise ConfigError(f"vLLM refuses its arguments: {message}")

        return make_arg_parser(Parser())


def flags_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return engine arguments as flags of `vllm serve`; None leaves vLLM's default."""
    flags: list[str] = []
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            flags.append(flag)
        elif value is False:
            flags.append(f"--no-{name.replace('_', '-')}")
        elif isinstance(value, Mapping):
            flags += [flag, json.dumps(value, sort_keys=True)]
        elif isinstance(value, list | tuple):
            flags += [flag, *(str(one) for one in value)]
        elif value is not None:
            flags += [flag, str(value)]
    return flags
