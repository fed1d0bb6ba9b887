"""Run a command, and end its whole process group when whoever started this is gone.

Usage: python supervise.py COMMAND...      (run by path; standard library only)

Standard input is a pipe whose other end the starter holds. It closes when the starter closes
it and when the starter dies, by whatever signal. A parent-death signal on the command would
not do alone: Linux sends it when the starting *thread* ends, and the command's own children
do not inherit it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_POLL_S = 0.2
_GRACE_S = 10.0
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main(command: list[str]) -> int:
    """Return the command's exit code, after its group is gone."""
    stopping = _stop_signals()
    _adopt_orphans()
    child = subprocess.Popen(  # noqa: S603 -- our own command, no shell
        command, stdin=subprocess.DEVNULL, process_group=0
    )
    while child.poll() is None and not stopping and not _starter_is_gone():
        pass
    _end_group(child)
    return child.returncode


def _stop_signals() -> list[int]:
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda arrived, _frame: received.append(arrived))
    return received


def _adopt_orphans() -> None:
    """Become the parent of what the command leaves behind, so that it can be waited for."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _starter_is_gone() -> bool:
    """Wait a moment; return whether the pipe was closed."""
    readable, _, _ = select.select([sys.stdin.fileno()], [], [], _POLL_S)
    return bool(readable) and os.read(sys.stdin.fileno(), 1) == b""


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """Ask the command, then its group, to end; kill what is still there after the grace."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal_group(child.pid, number)
        deadline = time.monotonic() + _GRACE_S
        while _is_alive(child) and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return  # all of it has ended already


def _is_alive(child: subprocess.Popen[bytes]) -> bool:
    """Return whether anything of the group lives, having reaped what ended."""
    if child.poll() is None:
        return True
    try:
        while os.waitpid(-child.pid, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False  # no child of ours is left in the group
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
