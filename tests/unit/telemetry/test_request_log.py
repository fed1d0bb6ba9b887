"""Requests as they were sent, in the form that lint and diff read."""

from __future__ import annotations

import stat
from dataclasses import replace

import pytest

from ragcache.errors import ConfigError
from ragcache.events import Called, Hooks, LaidOut
from ragcache.layout.lint import diff_records, read_records
from ragcache.settings import Settings
from ragcache.telemetry.hooks import subscribe
from ragcache.telemetry.request_log import RequestLog
from ragcache.types import Message
from tests.unit.telemetry.samples import SECRET, of_hit, of_miss


def written(path):
    return read_records(path.read_text(encoding="utf-8"), path=str(path))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "requests.jsonl"


def test_a_request_is_read_back_as_it_was_sent(file):
    log = RequestLog(file, clock_s=lambda: 12.5)
    for event in of_miss():
        log(event)
    (record,) = written(file)
    assert record.model == "m"
    assert record.tenant == "acme"
    assert record.at_s == 12.5
    assert [text.role for text in record.texts] == ["system", "user"]
    assert record.texts[1].text.endswith(SECRET)
    assert [document.text for document in record.documents] == ["The fee is 80."]


def test_hits_are_no_requests_to_the_target(file):
    log = RequestLog(file)
    for event in of_hit():
        log(event)
    assert written(file) == ()


def test_two_requests_can_be_compared(file):
    log = RequestLog(file)
    for number in range(2):
        _, laid, called, *_ = of_miss("acme", f"r{number}")
        messages = (Message(role="system", content=f"Now: {number}"), *laid.layout.messages[1:])
        log(replace(laid, layout=replace(laid.layout, messages=messages)))
        log(called)
    one, two = written(file)
    assert "system" in str(diff_records(one, two))


def test_the_file_is_for_its_owner_alone(file):
    RequestLog(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_cannot_be_written_is_told_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"telemetry\.request_log.*cannot be written"):
        RequestLog(tmp_path / "nowhere" / "requests.jsonl")


def test_a_full_log_grows_no_further_and_says_so_once(file, caplog):
    log = RequestLog(file, max_bytes=1_500)
    for number in range(10):
        _, laid, called, *_ = of_miss("acme", f"r{number}")
        log(laid)
        log(called)
    assert 0 < file.stat().st_size <= 1_500
    assert len(caplog.records) == 1


def test_prompts_that_are_never_sent_are_forgotten(file):
    log = RequestLog(file)
    laid = of_miss()[1]
    for number in range(1_000):
        log(replace(laid, request_id=f"r{number}"))
    assert len(log._pending) <= 256


def test_settings_switch_it_on_and_it_is_off_by_default(file):
    off, on = Hooks(), Hooks()
    quiet = {"prometheus": False, "opentelemetry": False, "record": False}
    subscribe(off, Settings.load(telemetry=quiet).telemetry)
    subscribe(on, Settings.load(telemetry={**quiet, "request_log": file}).telemetry)
    for event in of_miss():
        if isinstance(event, LaidOut | Called):
            off.emit(event)
            on.emit(event)
    assert len(written(file)) == 1
    assert off._hooks == []
