"""The check for a GPU, rehearsed on CPU from its command to its verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.vllm
@pytest.mark.prove
@pytest.mark.timeout(900)
def test_the_check_runs_from_its_command_to_its_verdict(smollm):
    command = [sys.executable, "-m", "ragcache.testing.gpu_check", "--rehearse"]
    done = subprocess.run(
        [*command, "--model", str(smollm)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "rehearsal: started in" in done.stdout
    assert "all as it should be" in done.stdout
