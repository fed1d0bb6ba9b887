"""What telemetry keeps in Postgres: of each tenant its own, bounded, in sums that add up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from ragcache import RagCache, Request, Settings
from ragcache.errors import StoreUnavailableError
from ragcache.store import traffic
from ragcache.store.traffic import TrafficWriter, Verdict
from ragcache.telemetry import figures, savings
from ragcache.telemetry.record import assemble
from ragcache.telemetry.recorder import row_of
from ragcache.types import Completion, Document, TenantId
from tests.unit.telemetry.samples import USAGE, of_hit, of_miss

PRICES = savings.prices_of({"m": {"input": 2.0, "read": 0.5, "output": 8.0}})
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)


def rows(*requests, at=NOW):
    return [row_of(assemble(events, at=at, prices=PRICES)) for events in requests]


@pytest.fixture
def writer(postgres):
    made = TrafficWriter(postgres.app, keep=20)
    yield made
    made.close()


def summed(postgres, tenant):
    return figures.total(traffic.hours(postgres.ops, since=LONG_AGO, tenant=tenant))


def recent(postgres, tenant):
    return traffic.recent(postgres.ops, since=LONG_AGO, tenant=tenant)


def test_sums_of_hours_are_the_sums_of_their_requests(postgres, writer, tenant):
    written = rows(*[of_miss(tenant, f"m{n}") for n in range(3)], of_hit(tenant, "h"))
    assert writer.write(tenant, written) == 0
    assert writer.write(tenant, rows(of_hit(tenant, "h2"), at=NOW + timedelta(hours=1))) == 0
    whole = summed(postgres, tenant)
    assert (whole.requests, whole.calls, whole.hits_semantic) == (5, 3, 2)
    assert (whole.input, whole.cached) == (18000, 3 * 4096)
    assert round(whole.saved, 6) == round(3 * 0.006144 + 2 * 0.0034, 6)
    assert len(traffic.hours(postgres.ops, since=LONG_AGO, tenant=tenant)) == 2
    assert len(recent(postgres, tenant)) == 5


def test_tenants_are_kept_apart(postgres, writer, tenant):
    other = TenantId(f"{tenant}-other")
    writer.write(tenant, rows(of_miss(tenant)))
    writer.write(other, rows(of_hit(other)))
    assert summed(postgres, tenant).requests == summed(postgres, other).requests == 1
    assert [r["status"] for r in recent(postgres, other)] == ["hit_semantic"]
    with psycopg.connect(postgres.app) as connection:
        for table in ("request", "traffic"):
            row = connection.execute(f"SELECT count(*) FROM ragcache.{table}").fetchone()
            assert row == (0,)


def test_requests_are_bounded_and_the_sums_are_not_lessened(postgres, writer, tenant):
    for start in range(0, 100, 10):
        at = NOW + timedelta(seconds=start)
        batch = [of_hit(tenant, f"r{start + n}") for n in range(10)]
        writer.write(tenant, rows(*batch, at=at))
    kept = recent(postgres, tenant)
    assert 20 <= len(kept) <= 30
    assert kept[0]["id"].startswith("r9")
    assert summed(postgres, tenant).requests == 100


def test_a_row_that_postgres_refuses_costs_only_itself(postgres, writer, tenant):
    good, bad, also_good = rows(*[of_hit(tenant, f"r{n}") for n in range(3)])
    assert writer.write(tenant, [good, bad | {"at": "no moment"}, also_good]) == 1
    assert len(recent(postgres, tenant)) == 2


def verdict(**fields):
    made = Verdict(
        id="h",
        entry="",
        agreed=True,
        by="verification",
        at=NOW,
        namespace="n",
        model="m",
        version="",
    )
    return replace(made, **fields)


def test_a_wrong_hit_loses_what_it_saved_once(postgres, writer, tenant):
    writer.write(tenant, rows(of_hit(tenant, "h"), of_hit(tenant, "g")))
    writer.write(tenant, (), [verdict(), verdict(id="g", agreed=False, verification=0.001)])
    writer.write(tenant, (), [verdict(id="g", agreed=False, by="feedback")])
    whole = summed(postgres, tenant)
    assert (whole.judged, whole.wrong, whole.reported) == (2, 1, 0)
    assert round(whole.saved, 6) == round(2 * 0.0034 - 0.0034 - 0.001, 6)
    assert {r["id"]: r["agreed"] for r in recent(postgres, tenant)} == {"h": True, "g": False}


def test_a_verdict_on_an_unknown_request_finds_the_latest_that_was_served_the_entry(
    postgres, writer, tenant
):
    written = rows(of_hit(tenant, "h"))
    writer.write(tenant, written)
    writer.write(tenant, (), [verdict(id="?", entry=written[0]["entry"], agreed=False)])
    assert [r["agreed"] for r in recent(postgres, tenant)] == [False]
    assert round(summed(postgres, tenant).lost, 6) == 0.0034


def test_a_verdict_on_a_request_long_gone_still_counts(postgres, writer, tenant):
    writer.write(tenant, rows(of_hit(tenant, "h")))
    writer.write(tenant, (), [verdict(id="gone", entry="gone", agreed=False)])
    assert (summed(postgres, tenant).judged, summed(postgres, tenant).wrong) == (1, 1)


def test_old_requests_and_sums_are_swept(postgres, writer, tenant):
    writer.write(tenant, rows(of_hit(tenant, "old"), at=NOW - timedelta(days=400)))
    writer.write(tenant, rows(of_hit(tenant, "older"), at=NOW - timedelta(days=40)))
    writer.write(tenant, rows(of_hit(tenant, "new")))
    assert traffic.sweep(postgres.ops, now=NOW) >= 3
    assert [r["id"] for r in recent(postgres, tenant)] == ["new"]
    assert summed(postgres, tenant).requests == 2


def test_a_request_is_found_by_the_beginning_of_its_id(postgres, writer, tenant):
    writer.write(tenant, rows(of_hit(tenant, "abc-1"), of_miss(tenant, "abd-%")))
    assert [r["id"] for r in traffic.find(postgres.ops, "abc", tenant=tenant)] == ["abc-1"]
    assert len(traffic.find(postgres.ops, "ab", tenant=tenant)) == 2
    assert traffic.find(postgres.ops, "%", tenant=tenant) == []


def test_the_writer_comes_back_after_its_connection_was_cut(postgres, writer, tenant):
    writer.write(tenant, rows(of_hit(tenant, "one")))
    with psycopg.connect(postgres.admin, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'ragcache-telemetry'"
        )
    for attempt in range(2):
        with suppress(StoreUnavailableError):
            writer.write(tenant, rows(of_hit(tenant, f"two-{attempt}")))
    assert "two-1" in {r["id"] for r in recent(postgres, tenant)}


# --- from settings to rows ---------------------------------------------------------------------


class Said:
    """A target that says something."""

    provider = "openai"
    name = "somewhere"
    model = "m"

    async def complete(self, call):
        return Completion(text="The fee is 80.", finish_reason="stop", usage=USAGE, model="m")


@pytest.mark.parametrize("contents", [False, True])
async def test_a_cache_made_from_settings_records_its_requests(postgres, tenant, contents):
    settings = Settings.load(
        store={"dsn": postgres.app},
        embedding={"model": ""},
        telemetry={"contents": contents, "prices": {"m": {"input": 2.0, "output": 8.0}}},
        budgets={"store_ms": 10_000, "put_ms": 10_000},
    )
    documents = (Document(text="The fee is 80.", source="tariff.pdf"),)
    asked = Request(tenant=tenant, question="What is it, exactly?", documents=documents)
    async with RagCache.open(settings, target=Said()) as cache:
        await cache.answer(asked)
        await cache.answer(asked)
    hit, miss = recent(postgres, tenant)
    assert (miss["status"], hit["status"]) == ("miss", "hit_exact")
    assert miss["cost"] > 0
    assert hit["saved_input"] == 6000
    expected = "What is it, exactly?" if contents else ""
    assert hit["question"] == miss["question"] == expected


async def test_recording_can_be_off(postgres, tenant):
    settings = Settings.load(
        store={"dsn": postgres.app}, embedding={"model": ""}, telemetry={"record": False}
    )
    async with RagCache.open(settings, target=Said()) as cache:
        await cache.answer(Request(tenant=tenant, question="What is it?"))
    assert recent(postgres, tenant) == []


async def test_a_store_that_is_down_breaks_no_request_and_no_closing(tenant):
    settings = Settings.load(
        store={"dsn": "postgresql://ragcache_app:x@127.0.0.1:1/none"}, embedding={"model": ""}
    )
    async with RagCache.open(settings, target=Said()) as cache:
        answers = await asyncio.gather(
            *[cache.answer(Request(tenant=tenant, question=f"q{n}?")) for n in range(5)]
        )
    assert {a.text for a in answers} == {"The fee is 80."}
