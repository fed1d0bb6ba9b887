"""inspect, purge, promote and stats, as an operator types them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ragcache.store import reports
from ragcache.types import Document
from tests.store_samples import entry, request

from .conftest import shape

DOCUMENT = Document(text="The fee is 80.", source="fees.pdf")


@pytest.fixture
def stored(store, tenant):
    async def put(**fields):
        asked = request(tenant, **fields.pop("asked", {}))
        made = entry(asked, **fields)
        assert await store.put(made, await store.snapshot(made.scope, asked.documents)) == ""
        return made

    return put


# --- inspect and stats -------------------------------------------------------------------------


async def test_inspect_shows_an_entry_with_its_answer_and_lineage(cli, stored, tenant):
    made = await stored(asked={"documents": (DOCUMENT,)})
    shown = cli("inspect", "--tenant", tenant, made.id).out
    assert "It is this." in shown
    assert "fees.pdf" in shown
    found = cli("inspect", "--tenant", tenant, made.id, "--json").json
    assert found["answer"] == {"text": "It is this."}
    assert found["lineage"][0]["names"] == ["fees.pdf"]
    assert "signature" not in found


async def test_inspect_lists_the_newest_entries_with_a_stable_schema(cli, stored, tenant):
    await stored()
    listed = cli("inspect", "--tenant", tenant, "--json").json
    assert shape(listed) == {
        "entries": [
            dict.fromkeys(
                [
                    "id",
                    "question",
                    "state",
                    "namespace",
                    "principal",
                    "sharing",
                    "model",
                    "created_at",
                    "expire_at",
                ],
                "str",
            )
            | {"hits": "int"}
        ]
    }
    assert "What is it?" in cli("inspect", "--tenant", tenant).out


async def test_a_stored_question_cannot_steer_the_operators_terminal(cli, stored, tenant):
    made = await stored(asked={"question": "\x1b[2J\x1b]0;owned\x07 [red]what[/red] is it?"})
    for ran in (cli("inspect", "--tenant", tenant), cli("inspect", "--tenant", tenant, made.id)):
        assert "\x1b" not in ran.out
        assert "\x07" not in ran.out
        assert "[red]what[/red]" in ran.out


def test_inspect_of_an_unknown_entry_says_how_to_find_one(cli, tenant):
    ran = cli("inspect", "--tenant", tenant, "nope", code=1)
    assert "nope" in ran.err
    assert f"ragcache inspect --tenant {tenant}" in ran.err


async def test_stats_have_a_stable_schema(cli, stored, tenant):
    await stored()
    found = cli("stats", "--tenant", tenant, "--json").json
    assert shape(found["namespaces"]) == [
        {"tenant": "str", "namespace": "str"}
        | dict.fromkeys(
            ["entries", "live", "quarantined", "deleted", "expired", "hits", "bytes"], "int"
        )
    ]
    assert found["embedders"] == {"E": 1}
    assert tenant in cli("stats", "--tenant", tenant).out


# --- purge -------------------------------------------------------------------------------------


async def test_purge_counts_asks_and_only_then_takes(cli, stored, tenant, postgres):
    made = await stored()
    asked = ("purge", "--tenant", tenant)
    refused = cli(*asked, stdin="n\n", code=1)
    assert "Purge 1 entries?" in refused.err
    assert state(postgres, tenant, made) == "live"
    cli(*asked, code=1)  # no answer is no
    assert state(postgres, tenant, made) == "live"
    cli(*asked, stdin="y\n")
    assert state(postgres, tenant, made) == "deleted"


async def test_purge_dry_run_takes_nothing(cli, stored, tenant, postgres):
    made = await stored()
    ran = cli("purge", "--tenant", tenant, "--dry-run", "--json")
    assert ran.json == {"entries": {tenant: 1}, "total": 1, "dry_run": True}
    assert state(postgres, tenant, made) == "live"


async def test_purge_by_document_writes_why_into_the_audit(cli, stored, tenant, postgres):
    made = await stored(asked={"documents": (DOCUMENT,)})
    other = await stored(asked={"question": "Another?"})
    chosen = ("purge", "--tenant", tenant, "--document", "fees.pdf")
    done = cli(*chosen, "--yes", "--reason", "poisoned", "--json").json
    assert done == {"entries": {tenant: 1}, "total": 1, "dry_run": False}
    assert [state(postgres, tenant, e) for e in (made, other)] == ["deleted", "live"]
    (row,) = cli("inspect", "--tenant", tenant, "--audit", "--json").json["audit"]
    assert (row["action"], row["reason"], row["entries"]) == ("purge", "poisoned", 1)


@pytest.mark.parametrize("age", ["7d", "2026-01-01"])
async def test_purge_reads_an_age_or_a_date(cli, stored, tenant, age, postgres):
    long_ago = datetime(2025, 6, 1, tzinfo=UTC)
    old = await stored(created_at=long_ago)
    new = await stored(asked={"question": "New?"}, created_at=datetime.now(UTC) - timedelta(days=1))
    cli("purge", "--tenant", tenant, "--older-than", age, "--yes")
    assert [state(postgres, tenant, e) for e in (old, new)] == ["deleted", "live"]


async def test_erasing_a_person_asks_and_removes_for_good(cli, stored, tenant, postgres):
    made = await stored(asked={"principal": "ann"})
    ran = cli("purge", "--tenant", tenant, "--principal", "ann", stdin="y\n")
    assert "for good" in ran.err
    assert reports.inspect(postgres.ops, tenant, made.id) is None


async def test_erasing_a_tenant_leaves_only_the_audit(cli, stored, tenant, postgres):
    await stored()
    ran = cli("purge", "--tenant", tenant, "--erase", stdin="y\n")
    assert "for good" in ran.err
    assert cli("inspect", "--tenant", tenant, "--json").json["entries"] == []
    assert len(cli("inspect", "--tenant", tenant, "--audit", "--json").json["audit"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--principal", "ann"),
        ("--tenant", "t", "--principal", "ann", "--model", "m"),
        ("--tenant", "t", "--older-than", "soon"),
        ("--erase",),
        ("--tenant", "t", "--erase", "--model", "m"),
        ("--tenant", "t", "--erase", "--principal", "ann"),
    ],
)
def test_a_purge_that_would_take_other_than_was_meant_is_a_usage_error(cli, arguments):
    assert cli("purge", *arguments, "--yes", code=2).err


# --- promote -----------------------------------------------------------------------------------


async def test_promote_puts_a_quarantined_entry_into_service(cli, stored, tenant, postgres):
    made = await stored(state="quarantined")
    cli("promote", "--tenant", tenant, made.id, "--reason", "reviewed")
    assert state(postgres, tenant, made) == "live"
    ran = cli("promote", "--tenant", tenant, made.id, code=1)
    assert "in quarantine" in ran.err


def state(postgres, tenant, made):
    return reports.inspect(postgres.ops, tenant, made.id)["state"]
