"""The recorder keeps out of the request's way, and loses no more than it says."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from ragcache.errors import StoreUnavailableError
from ragcache.telemetry import recorder as module
from ragcache.telemetry import savings
from ragcache.telemetry.recorder import Recorder
from tests.unit.telemetry.samples import judged, of_hit, of_miss


class Kept:
    """A writer that keeps what it was given, or is down."""

    def __init__(self):
        self.rows = []
        self.verdicts = []
        self.down = False
        self.closed = False

    def write(self, tenant, rows, verdicts=()):
        if self.down:
            raise StoreUnavailableError("down")
        self.rows += [(tenant, row) for row in rows]
        self.verdicts += [(tenant, v) for v in verdicts]
        return 0

    def close(self):
        self.closed = True


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def recorder(kept):
    made = Recorder(kept, prices=savings.prices_of(), every_s=3600, limit=10)
    yield made
    made.close()


def feed(recorder, events):
    for event in events:
        recorder(event)


def test_requests_are_kept_apart_by_tenant_though_their_events_mix(recorder, kept):
    a, b = of_miss("a", "r1"), of_miss("b", "r2")
    for pair in zip(a, b, strict=True):
        feed(recorder, pair)
    recorder.flush()
    assert {(tenant, row["id"], row["status"]) for tenant, row in kept.rows} == {
        ("a", "r1", "miss"),
        ("b", "r2", "miss"),
    }


def test_nothing_is_written_before_a_request_is_whole(recorder, kept):
    feed(recorder, of_miss()[:-1])
    recorder.flush()
    assert kept.rows == []


def test_a_call_whose_caller_left_is_kept_after_a_while(recorder, kept, monkeypatch):
    monkeypatch.setattr(module, "_LEFT_S", -1.0)
    feed(recorder, of_miss()[:-1])
    recorder.flush()
    ((_, row),) = kept.rows
    assert row["input"] == 6000


def test_a_lookup_that_nobody_followed_up_is_forgotten_and_counted(recorder, kept, monkeypatch):
    monkeypatch.setattr(module, "_LOST_S", -1.0)
    feed(recorder, of_miss()[:1])
    recorder.flush()
    assert (kept.rows, recorder.dropped, len(recorder._pending)) == ([], 1, 0)


def test_a_database_that_is_down_costs_records_and_nothing_else(recorder, kept, caplog):
    kept.down = True
    for number in range(3):
        feed(recorder, of_hit(request_id=f"r{number}"))
        recorder.flush()
    assert recorder.dropped == 3
    assert caplog.text.count("not recorded until the store is back") == 1
    kept.down = False
    feed(recorder, of_hit())
    recorder.flush()
    assert len(kept.rows) == 1


def test_what_waits_is_bounded_and_the_oldest_goes_first(recorder, kept):
    for number in range(25):
        feed(recorder, of_hit(request_id=f"r{number}"))
    assert len(recorder._whole) == 10
    recorder.flush()
    assert [row["id"] for _, row in kept.rows] == [f"r{n}" for n in range(15, 25)]
    assert recorder.dropped == 15


def test_verdicts_reach_the_writer_with_their_tenant(recorder, kept):
    recorder(judged("acme", agreed=False, by="feedback"))
    recorder.flush()
    ((tenant, verdict),) = kept.verdicts
    assert (tenant, verdict.id, verdict.agreed, verdict.by) == ("acme", "r2", False, "feedback")


def test_closing_writes_what_is_left_and_ends_the_thread(kept):
    recorder = Recorder(kept, prices=savings.prices_of(), every_s=3600)
    feed(recorder, of_hit())
    feed(recorder, of_miss()[:-1])
    recorder.close()
    assert {row["status"] for _, row in kept.rows} == {"hit_semantic", "miss"}
    assert kept.closed
    assert not any(t.name == "ragcache-recorder" and t.is_alive() for t in threading.enumerate())


def test_events_of_many_threads_lose_nothing(kept):
    recorder = Recorder(kept, prices=savings.prices_of(), every_s=0.001)

    def work(number):
        for step in range(50):
            feed(recorder, of_hit(request_id=f"{number}-{step}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    assert len({row["id"] for _, row in kept.rows}) == 400


def test_an_event_that_cannot_be_recorded_does_not_end_the_recorder(kept):
    recorder = Recorder(kept, prices=savings.prices_of(), every_s=0.001)
    looked, answered = of_hit(request_id="bad")
    feed(recorder, [replace(looked, outcome=None), answered])
    feed(recorder, of_hit(request_id="good"))
    recorder.close()
    assert [row["id"] for _, row in kept.rows] == ["good"]
