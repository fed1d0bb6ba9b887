"""The check for a GPU: what it would say of what it saw, and that it says so without one."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from ragcache.testing import gpu_check
from ragcache.testing.gpu_check import (
    PHASES,
    REHEARSAL,
    Seen,
    Timing,
    faults,
    prompt,
    read,
    run,
    table,
)

BALANCED, LONG, MANY = PHASES
SEEN = Seen(
    name="balanced",
    start_s=40.0,
    block_size=16,
    kv_dtype="auto",
    prompt=2003,
    cached=2000,
    other_salt=0,
    pushed_out=0,
    timings=(Timing(tokens=2000, cold_s=0.08, hit_s=0.02),),
)
OFFLOADED = replace(SEEN, name="long_context", kv_dtype="fp8_e4m3", pushed_out=2000)


def test_what_is_as_it_should_be_has_no_fault():
    assert faults(BALANCED, SEEN) == ()
    assert faults(LONG, OFFLOADED) == ()
    assert "cold 80 ms, found again 20 ms, 4.0 times sooner" in table(SEEN)


@pytest.mark.parametrize(
    ("phase", "seen", "told"),
    [
        (BALANCED, replace(SEEN, cached=1984), "1984 cached tokens of 2003, expected 2000"),
        (BALANCED, replace(SEEN, other_salt=16), "another salt found 16 tokens"),
        (BALANCED, replace(SEEN, pushed_out=32), "that others had pushed out"),
        (BALANCED, replace(SEEN, timings=(Timing(tokens=8000, cold_s=1, hit_s=1),)), "1.0 times"),
        (LONG, replace(OFFLOADED, pushed_out=0), "not found in another tier"),
        (LONG, replace(OFFLOADED, kv_dtype="auto"), "the KV cache is auto, not fp8"),
    ],
)
def test_each_fault_is_told(phase, seen, told):
    (fault,) = faults(phase, seen)
    assert told in fault


def test_what_a_phase_prints_is_read_back():
    assert read(json.loads(json.dumps(asdict(OFFLOADED)))) == OFFLOADED


def test_the_presets_of_the_phases_are_all_there_are():
    assert [phase.preset for phase in PHASES] == ["balanced", "long_context", "many_tenants"]
    assert len({phase.name for phase in (*PHASES, *REHEARSAL)}) == 4


def test_prompts_differ_from_their_first_word():
    assert prompt("a", 200)[0] != prompt("b", 200)[0]
    assert 4 * 200 < len(prompt("a", 400)) < 4 * 500


def test_phases_that_end_badly_or_late_fail_the_check(monkeypatch, capsys):
    answers = iter([SEEN, "ended with 1: out of memory", OFFLOADED])
    monkeypatch.setattr(gpu_check, "_apart", lambda *_, **__: next(answers))
    assert run(PHASES, "m") == 1
    told = capsys.readouterr().out
    assert "FAIL long_context: ended with 1: out of memory" in told
    assert "not as it should be" in told
    monkeypatch.setattr(
        gpu_check, "_apart", lambda phase, *_, **__: SEEN if phase is BALANCED else OFFLOADED
    )
    assert run(PHASES, "m") == 0


def test_without_a_gpu_nothing_is_claimed(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu_check, "platform_here", lambda: "cpu")
    assert gpu_check.main(["--model", str(tmp_path)]) == 3
    assert "nothing was checked" in capsys.readouterr().out
