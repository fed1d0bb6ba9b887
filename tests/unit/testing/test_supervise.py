"""The supervisor: nothing of the command's process group outlives the starter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ragcache.testing

SUPERVISOR = Path(ragcache.testing.__file__).with_name("supervise.py")
#: A command with a child of its own that ignores the polite request to end.
STUBBORN = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + f"/{os.getpid()}", "w").close()
time.sleep(300)
"""
OBEDIENT = STUBBORN.replace("signal.SIG_IGN", "signal.SIG_DFL")


def pids(folder: Path) -> list[int]:
    deadline = time.monotonic() + 20
    while len(found := list(folder.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    return [int(file.name) for file in found]


def gone(process_ids: list[int], *, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while any(is_running(pid) for pid in process_ids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def supervised(code: str, folder: Path) -> list[str]:
    return [sys.executable, "-P", str(SUPERVISOR), sys.executable, "-c", code, str(folder)]


def test_closing_the_pipe_ends_the_command_and_its_children(tmp_path: Path) -> None:
    with subprocess.Popen(supervised(OBEDIENT, tmp_path), stdin=subprocess.PIPE) as supervisor:
        running = pids(tmp_path)
        assert len(running) == 2
        assert all(map(is_running, running))  # control: they run before
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        assert gone(running, within_s=5)
        assert supervisor.wait(5) != 0


@pytest.mark.timeout(60)
def test_the_death_of_the_starter_ends_everything_even_what_ignores_the_request(
    tmp_path: Path,
) -> None:
    starter_code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen({supervised(STUBBORN, tmp_path)!r}, stdin=subprocess.PIPE,"
        " start_new_session=True)\n"
        "time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", starter_code]) as starter:
        running = pids(tmp_path)
        assert len(running) == 2
        starter.send_signal(signal.SIGKILL)
        assert gone(running, within_s=25)


def test_the_commands_exit_code_is_handed_on() -> None:
    command = [sys.executable, "-P", str(SUPERVISOR), sys.executable, "-c", "raise SystemExit(7)"]
    read, write = os.pipe()  # a pipe that stays open: the starter lives
    try:
        assert subprocess.run(command, stdin=read, check=False, timeout=20).returncode == 7
    finally:
        os.close(read)
        os.close(write)
