"""doctor: each thing that can be wrong is found, and what to do first is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from ragcache.cli.health import _ORDER
from ragcache.store import health
from ragcache.store.postgres import PostgresStore
from ragcache.store.traffic import TrafficWriter
from ragcache.telemetry import savings
from ragcache.telemetry.record import assemble
from ragcache.telemetry.recorder import row_of
from ragcache.types import TenantId
from tests.store_samples import entry, request, unit
from tests.unit.telemetry.samples import of_miss

from .conftest import shape

NOWHERE = "postgresql://ragcache_app:x@127.0.0.1:1/none"


def looked(cli, *, code: int | None = 0, **env):
    found = cli("doctor", "--json", code=code, **env).json
    return {row["name"]: row for row in found["findings"]}


@pytest.fixture
def alone(bare_cli, fresh_database):
    """A database that no other test has used."""
    bare_cli.env = {
        "RAGCACHE_STORE__DSN": fresh_database.app,
        "RAGCACHE_STORE__OPS_DSN": fresh_database.ops,
    }
    return bare_cli


@pytest.fixture
def served(alone, upstream):
    alone.env |= {"RAGCACHE_API__BASE_URL": upstream.base_url, "RAGCACHE_MODEL__NAME": "fake"}
    return alone


def test_the_schema_of_doctor(alone):
    found = alone("doctor", "--json").json
    row = {"name": "str", "ok": "bool", "detail": "str", "advice": "str"}
    assert shape(found) == {"findings": [row], "ok": "bool"}


def test_what_is_sound_is_said_to_be_and_in_order(served):
    found = served("doctor", "--json").json
    names = [row["name"] for row in found["findings"]]
    assert found["ok"]
    assert names == sorted(names, key=_ORDER.index)
    assert names == [
        "target",
        "model",
        "prefixes",
        "counters",
        "similarity",
        "lifetime",
        "isolation",
        "ops",
        "schema",
        "extension",
        "index",
        "clock",
    ]
    assert "all is well" in served("doctor").out


def test_what_comes_first_is_told_first(served, upstream):
    """Wrong key or wrong address: neither the model nor the prefixes can be judged before."""
    ran = served("doctor", code=3, RAGCACHE_API__BASE_URL=f"{upstream.base_url}/elsewhere")
    assert "check api.base_url and the key" in ran.out.split("first:")[1]


def test_a_wrong_model_is_told_which_there_are(served):
    ran = served("doctor", code=3, RAGCACHE_MODEL__NAME="fakee")
    assert (
        "first: fakee is not among the models it serves: set model.name to one of fake" in ran.out
    )


def test_a_server_that_is_away_is_told(served):
    ran = served("doctor", code=3, RAGCACHE_API__BASE_URL="http://127.0.0.1:1/v1")
    assert "cannot be reached" in ran.out.split("first:")[1]


def test_no_server_at_all_is_no_fault_of_a_chain_with_a_model_of_its_own(alone):
    assert looked(alone)["target"]["ok"]


def test_a_database_that_is_away_is_told(bare_cli):
    ran = bare_cli("doctor", code=3, RAGCACHE_STORE__DSN=NOWHERE, RAGCACHE_STORE__OPS_DSN=NOWHERE)
    assert "FAIL" in ran.out
    assert "127.0.0.1" in ran.out.split("first:")[1]


def test_a_database_is_looked_at_as_far_as_the_app_role_sees(alone):
    found = looked(alone, RAGCACHE_STORE__OPS_DSN="")
    assert found["isolation"]["ok"]
    assert "maintenance runs elsewhere" in found["ops"]["detail"]
    assert "index" not in found


def test_row_security_that_was_switched_off_is_found(alone, fresh_database):
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("ALTER TABLE ragcache.entry NO FORCE ROW LEVEL SECURITY")
    ran = alone("doctor", code=3)
    assert "ragcache.entry" in ran.out.split("first:")[1]
    assert not alone("doctor", "--json", code=3).json["ok"]


async def test_a_partition_without_an_index_is_named(alone, fresh_database):
    store = PostgresStore(fresh_database.app, pool_wait_s=10.0)
    await store.open()
    for number in range(3):
        asked = request("crowd", question=f"What is number {number}?")
        made = entry(asked, vector=unit(1.0, number), embedder="e", reading={})
        assert await store.put(made, await store.snapshot(made.scope, ())) == ""
    await store.close()
    found = looked(alone, RAGCACHE_STORE__INDEX_AT="3")["index"]
    assert found["ok"]
    assert "1 partitions of up to 3 vectors" in found["detail"]
    assert "ragcache maintain" in found["advice"]
    assert looked(alone)["index"]["advice"] == ""


def test_clocks_that_are_apart_are_found(alone, monkeypatch):
    class Late(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(minutes=3)

    monkeypatch.setattr(health, "datetime", Late)
    found = looked(alone, code=3)["clock"]
    assert not found["ok"]
    assert "180 s apart" in found["detail"]


def test_the_last_requests_are_read_and_what_would_save_more_is_said(alone, fresh_database):
    writer = TrafficWriter(fresh_database.app)
    rows = []
    for number in range(6):
        made = row_of(
            assemble(
                of_miss("acme", f"r{number}"), at=datetime.now(UTC), prices=savings.prices_of()
            )
        )
        rows.append(made | {"head": f"head-{number}"})
    writer.write(TenantId("acme"), rows)
    writer.close()
    ran = alone("doctor")
    assert "all is sound; first: something in the system text or the tools changes" in ran.out
    assert "evicted" in ran.out


def test_redis_alone_is_looked_at_without_postgres(bare_cli):
    env = {"RAGCACHE_STORE__KIND": "redis", "RAGCACHE_STORE__REDIS_DSN": "redis://127.0.0.1:1/0"}
    found = looked(bare_cli, code=3, **env)
    assert list(found) == ["target", "redis"]
