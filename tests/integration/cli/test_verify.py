"""verify, against a real store, the real embedder and a fake provider."""

from __future__ import annotations

import random

import psycopg
import pytest

from ragcache import factory
from ragcache.cli.verifying import PAIRS
from ragcache.keys import fold
from ragcache.pipeline.guarding import Guarding
from tests.doubles.embedder import TableEmbedder
from tests.doubles.upstream import Reply

from .conftest import shape


def usage(cached: int, *, prompt: int = 2400) -> dict:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": 3,
        "total_tokens": prompt + 3,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


@pytest.fixture
def configured(cli, upstream, fresh_database):
    """With a database of its own: what other tests judge wrong may switch a shared guard off."""
    cli.env |= {
        "RAGCACHE_STORE__DSN": fresh_database.app,
        "RAGCACHE_STORE__OPS_DSN": fresh_database.ops,
        "RAGCACHE_BUDGETS__STORE_MS": "10000",
        "RAGCACHE_BUDGETS__EMBED_MS": "10000",
        "RAGCACHE_API__BASE_URL": upstream.base_url,
        "RAGCACHE_API__PROVIDER": "openai",
        "RAGCACHE_MODEL__NAME": "gpt-4o",
    }
    return cli


@pytest.fixture
def tabled(configured, monkeypatch):
    """An embedder for which a paraphrase is near and a trap is not."""
    table = TableEmbedder()
    for at, pair in enumerate(PAIRS):
        for text, similarity in ((pair.stored, 1.0), (pair.same, 0.98), (pair.trap, 0.3)):
            table.place(fold(text), similarity, group=at)
    monkeypatch.setattr(factory, "embedder_from", lambda settings: table)
    return configured


def test_verify_tells_a_paraphrase_from_its_trap_and_leaves_nothing(
    tabled, upstream, fresh_database
):
    upstream.answer(*[Reply(usage=usage(c)) for c in (0, 2304, 0, 2304)])
    found = tabled("verify", "--json").json
    verdicts = {(c["language"], c["kind"]): c["verdict"] for c in found["lookup"]}
    assert {v for (_, kind), v in verdicts.items() if kind != "paraphrase"} == {"ok"}
    assert verdicts["English", "paraphrase"] == "ok"
    traps = [c for c in found["lookup"] if c["kind"] == "trap"]
    assert all(c["reason"] == "below_threshold" for c in traps)
    assert [p["verdict"] for p in found["prefix"]] == ["ok", "ok"]
    assert [p["second"]["cached"] for p in found["prefix"]] == [2304, 2304]
    assert entries_of_verify(fresh_database) == 0


def test_verify_teaches_the_guard_nothing(tabled, monkeypatch, caplog):
    """Its answers are made up: verifying hits with them would switch semantic hits off."""

    taught = []

    def refuse(*args, **kwargs):
        taught.append(args)
        raise AssertionError("a hit of verify was judged")

    monkeypatch.setattr(Guarding, "judged", refuse)
    monkeypatch.setattr(Guarding, "_exchanged", refuse)
    monkeypatch.setattr(random, "random", lambda: 0.0)
    for _ in range(3):
        found = tabled("verify", "--json", RAGCACHE_MODEL__NAME="").json
        assert [c["verdict"] for c in found["lookup"][:3]] == ["ok"] * 3
    assert not taught
    assert "in the background failed" not in caplog.text


def entries_of_verify(postgres) -> int:
    with psycopg.connect(postgres.ops) as connection:
        rows = connection.execute("SELECT DISTINCT tenant FROM ragcache.namespace").fetchall()
    tenants = [name for (name,) in rows if name.startswith("ragcache-verify-")]
    counts = []
    for tenant in tenants:
        with psycopg.connect(postgres.ops) as connection:
            connection.execute("SELECT set_config('ragcache.tenant', %s, true)", (tenant,))
            counts += connection.execute("SELECT count(*) FROM ragcache.entry").fetchone()
    return sum(counts)


def test_the_schema_of_verify(tabled, upstream):
    upstream.answer(*[Reply(usage=usage(c)) for c in (0, 2304, 0, 2304)])
    call = {"ttft_s": "float", "input": "int", "cached": "int"}
    assert shape(tabled("verify", "--json").json) == {
        "lookup": [
            {
                "language": "str",
                "kind": "str",
                "stored": "str",
                "asked": "str",
                "served": "bool",
                "right": "bool",
                "reason": "str",
                "similarity": "float",
                "milliseconds": "float",
                "verdict": "str",
            }
        ],
        "prefix": [
            {
                "language": "str",
                "first": call,
                "second": call,
                "verdict": "str",
                "advice": "str",
            }
        ],
    }


def test_both_calls_of_a_pair_share_all_but_the_question_and_no_two_runs_do(tabled, upstream):
    for _ in range(2):
        tabled("verify")
    systems = [body["messages"][0]["content"] for body in upstream.bodies]
    questions = [body["messages"][1]["content"] for body in upstream.bodies]
    assert systems[0] == systems[1]
    assert questions[0] != questions[1]
    assert systems[0] != systems[4]
    assert len(systems[0]) > 4 * 1024  # above the least prefix of this provider


def test_verify_says_what_to_look_at_where_nothing_is_reused(tabled, upstream):
    upstream.answer(Reply(usage=usage(0)))
    shown = tabled("verify").out
    assert "unexpected_miss" in shown
    assert "--enable-prefix-caching" in shown
    assert "many repeats" in shown


def test_a_prefix_under_the_least_is_no_fault(tabled, upstream):
    upstream.answer(Reply(usage=usage(0, prompt=900)))
    shown = tabled("verify").out
    assert "below_floor" in shown
    assert "--enable-prefix-caching" not in shown


def test_a_target_that_refuses_is_a_finding_and_the_cache_is_checked_all_the_same(tabled, upstream):
    upstream.answer(Reply(status=401))
    ran = tabled("verify", code=3)
    assert "answered 401" in ran.out
    assert "paraphrase" in ran.out


def test_verify_without_a_target_checks_the_cache_alone(tabled):
    assert "no target is set" in tabled("verify", RAGCACHE_MODEL__NAME="").out


def test_a_trap_that_is_served_is_shown_and_fails(configured, monkeypatch):
    """The control: an embedder for which all is one, without gates."""
    one = TableEmbedder()
    monkeypatch.setattr(one, "_vector", lambda text: TableEmbedder()._vector("one"))
    monkeypatch.setattr(factory, "embedder_from", lambda settings: one)
    ran = configured(
        "verify",
        code=3,
        RAGCACHE_MODEL__NAME="",
        RAGCACHE_LOOKUP='{"gates": "off", "threshold": 0.5, "evidence": false}',
    )
    assert "a trap was served (English" in ran.out
    assert "What is the demurrage fee per week?" in ran.out


def test_an_embedder_that_knows_nothing_alike_misses_and_does_not_fail(configured, monkeypatch):
    monkeypatch.setattr(factory, "embedder_from", lambda settings: TableEmbedder())
    ran = configured("verify", "--json", RAGCACHE_MODEL__NAME="")
    verdicts = {c["kind"]: c["verdict"] for c in ran.json["lookup"]}
    assert verdicts == {"same words": "ok", "paraphrase": "missed", "trap": "ok"}


def test_a_store_that_cannot_be_reached_is_told(tabled):
    nowhere = "postgresql://ragcache_app:x@127.0.0.1:1/none"
    ran = tabled("verify", code=3, RAGCACHE_MODEL__NAME="", RAGCACHE_STORE__DSN=nowhere)
    assert "the same question again was not served" in ran.out
    assert "ragcache doctor" in ran.out


def test_the_real_embedder_serves_the_paraphrase_and_not_the_trap(configured):
    found = configured("verify", "--json", code=None, RAGCACHE_MODEL__NAME="")
    checks = {(c["language"], c["kind"]): c for c in found.json["lookup"]}
    assert checks["English", "paraphrase"]["reason"] == "semantic"
    assert 0.9 < checks["English", "paraphrase"]["similarity"] < 1
    assert not [c for c in checks.values() if c["kind"] == "trap" and c["served"]]
    assert found.code == 0
