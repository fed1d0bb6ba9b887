"""Keeps what `stats`, `report` and `why` need of each request, without being in its way.

In the request's path an event is appended to a list, no more. A thread makes records of whole
requests and writes them once a second. What cannot be written is dropped and counted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Protocol

from ..events import Called, Event, Judged, LookedUp
from ..store.traffic import Verdict
from . import record
from .record import Judgement, Record
from .savings import PriceOf

_log = logging.getLogger("ragcache")

#: Requests whose last event has not come yet.
_PENDING_MAX = 4_096
#: A caller that left will never answer; its call was paid for all the same.
_LEFT_S = 60.0
_LOST_S = 900.0
_FIELDS = tuple(field.name for field in fields(Record) if field.name != "tenant")


class Writer(Protocol):
    """Where records go."""

    def write(
        self, tenant: str, rows: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict] = ()
    ) -> int:
        """Write what happened in one tenant; return how many rows were refused."""

    def close(self) -> None:
        """Give everything back."""


class Recorder:
    """A hook that keeps a record of each request.

    Args:
        writer: Where records go.
        prices: Of models.
        contents: Keep what was asked and answered, and by whom.
        every_s: Time between two writes.
        limit: Requests that wait to be written; the oldest are dropped beyond.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        prices: PriceOf,
        contents: bool = False,
        every_s: float = 1.0,
        limit: int = 10_000,
    ) -> None:
        self.dropped = 0
        self._writer = writer
        self._prices = prices
        self._contents = contents
        self._every_s = every_s
        self._limit = limit
        self._pending: OrderedDict[str, tuple[float, list[Event]]] = OrderedDict()
        self._whole: deque[tuple[float, list[Event]]] = deque()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="ragcache-recorder", daemon=True)
        self._thread.start()

    # --- in the request's path -----------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        """Note an event."""
        now_s = time.time()
        if isinstance(event, Judged):
            self._put(now_s, [event])
            return
        with self._lock:
            began_s, events = self._pending.get(event.request_id) or (now_s, [])
            events.append(event)
            if not record.is_last(event):
                self._pending[event.request_id] = began_s, events
                return
            self._pending.pop(event.request_id, None)
        self._put(now_s, events)

    def _put(self, now_s: float, events: list[Event]) -> None:
        self._whole.append((now_s, events))
        if len(self._whole) > self._limit:
            self._whole.popleft()
            self.dropped += 1

    # --- beside it -----------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what is whole now; never raises for a database that is down."""
        with self._writing:
            self._give_up_waiting(time.time())
            for tenant, (rows, verdicts) in self._taken().items():
                self._write(tenant, rows, verdicts)

    def close(self) -> None:
        """Write what is left and end."""
        self._closing.set()
        self._thread.join(timeout=10)
        with self._lock:
            left, self._pending = list(self._pending.values()), OrderedDict()
        for began_s, events in left:
            if any(isinstance(event, Called) for event in events):
                self._put(began_s, events)
        self.flush()
        self._writer.close()

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            self.flush()

    def _give_up_waiting(self, now_s: float) -> None:
        """Take requests whose caller has left as whole, and forget those that never called."""
        with self._lock:
            for request_id, (began_s, events) in list(self._pending.items()):
                age_s = now_s - began_s
                called = any(isinstance(event, Called) for event in events)
                crowded = len(self._pending) > _PENDING_MAX
                if (called and age_s > _LEFT_S) or age_s > _LOST_S or crowded:
                    del self._pending[request_id]
                    if called:
                        self._whole.append((began_s, events))
                    elif any(isinstance(event, LookedUp) for event in events):
                        self.dropped += 1

    def _taken(self) -> dict[str, tuple[list[dict[str, Any]], list[Verdict]]]:
        """Make records of what is whole, by tenant."""
        taken: dict[str, tuple[list[dict[str, Any]], list[Verdict]]] = {}
        for _ in range(len(self._whole)):
            at_s, events = self._whole.popleft()
            at = datetime.fromtimestamp(at_s, UTC)
            place = taken.setdefault(events[-1].scope.tenant, ([], []))
            try:
                self._add(events, at, *place)
            except Exception:  # noqa: BLE001 -- one odd request must not cost the others; logged
                self.dropped += 1
                _log.warning("a request could not be recorded", exc_info=True)
        return taken

    def _add(
        self, events: list[Event], at: datetime, rows: list[dict[str, Any]], verdicts: list[Verdict]
    ) -> None:
        if isinstance(events[-1], Judged):
            verdicts.append(_verdict(record.judgement(events[-1], at=at, prices=self._prices)))
            return
        made = record.assemble(events, at=at, prices=self._prices, contents=self._contents)
        rows.append(row_of(made))

    def _write(self, tenant: str, rows: list[dict[str, Any]], verdicts: list[Verdict]) -> None:
        try:
            self.dropped += self._writer.write(tenant, rows, verdicts)
        except Exception as error:  # noqa: BLE001 -- telemetry goes on; the log tells once
            self.dropped += len(rows)
            if not self._failing:
                _log.warning("requests are not recorded until the store is back: %s", error)
            self._failing = True
        else:
            self._failing = False


def row_of(made: Record) -> dict[str, Any]:
    """Return a record as plain JSON values that Postgres can hold."""
    return {name: _held(getattr(made, name)) for name in _FIELDS}


def _held(value: Any) -> Any:
    if isinstance(value, str):
        if value.isascii() and "\x00" not in value:
            return value
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None  # NaN and infinity are no JSON
    if isinstance(value, tuple):
        return [_held(part) for part in value]
    return value


def _verdict(judged: Judgement) -> Verdict:
    return Verdict(
        id=judged.id,
        entry=judged.entry,
        agreed=judged.agreed,
        by=judged.by,
        at=judged.at,
        namespace=judged.namespace,
        model=judged.model,
        version=judged.version,
        verification=judged.cost or 0.0,
    )
