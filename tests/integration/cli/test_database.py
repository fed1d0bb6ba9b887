"""init, migrate, maintain, watch and reembed, as an operator types them."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import psycopg
import pytest

from ragcache.settings import Settings
from tests.fixtures_pipeline import KEYRING
from tests.fixtures_postgres import _PASSWORDS as PASSWORDS
from tests.store_samples import entry, keys, request, scope

ROLES_DSN = "postgresql://ragcache_{role}:{password}@{host}/{name}"


# --- init --------------------------------------------------------------------------------------


@pytest.fixture
def keeping_passwords(monkeypatch):
    """Roles are one for the server: other tests go on with the passwords they know."""
    from ragcache.store import roles

    left = list(PASSWORDS.values())
    monkeypatch.setattr(roles.secrets, "token_urlsafe", lambda n: left.pop(0))


def test_init_writes_the_dsns_where_only_their_owner_reads_them(
    bare_cli, bare_database, keeping_passwords
):
    ran = bare_cli("init", "--dsn", bare_database)
    written = Path("ragcache.toml")
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert set(tomllib.loads(written.read_text())["store"]) == {"dsn", "ops_dsn"}
    assert not any(password in ran.out + ran.err for password in PASSWORDS.values())
    assert bare_cli("doctor", "--json").json["ok"]
    assert bare_cli("stats", "--json").json["namespaces"] == []


def test_init_again_leaves_the_passwords_of_running_applications_alone(
    bare_cli, bare_database, keeping_passwords
):
    bare_cli("init", "--dsn", bare_database)
    before = Path("ragcache.toml").read_text()
    bare_cli("init", "--dsn", bare_database)
    assert Path("ragcache.toml").read_text() == before
    with psycopg.connect(Settings.load("ragcache.toml").store.dsn.get_secret_value()):
        pass


def test_init_does_not_overwrite_a_settings_file(bare_cli, bare_database):
    Path("ragcache.toml").write_text('[model]\nname = "m"\n')
    ran = bare_cli("init", "--dsn", bare_database, code=1)
    assert "ragcache.toml" in ran.err
    assert "--write" in ran.err
    assert Path("ragcache.toml").read_text() == '[model]\nname = "m"\n'


def test_init_without_a_dsn_makes_an_embedded_postgres_that_later_verbs_find(bare_cli, tmp_path):
    tmp_path.parent.chmod(0o711)
    tmp_path.chmod(0o711)
    home = {"RAGCACHE_STORE__HOME": str(tmp_path / "home")}
    assert "embedded Postgres" in bare_cli("init", **home).out
    assert bare_cli("doctor", "--json", **home).json["ok"]
    assert bare_cli("migrate", "--check", **home).code == 0


# --- migrate -----------------------------------------------------------------------------------


def test_migrate_check_tells_what_lacks_and_is_unhealthy_until_it_was_applied(
    bare_cli, fresh_database
):
    with psycopg.connect(fresh_database.admin, autocommit=True) as connection:
        connection.execute("DROP SCHEMA ragcache CASCADE")
        connection.execute("CREATE SCHEMA ragcache AUTHORIZATION ragcache_owner")
        connection.execute("GRANT USAGE ON SCHEMA ragcache TO ragcache_app, ragcache_ops")
    ran = bare_cli("migrate", "--check", "--json", "--dsn", fresh_database.ops, code=3)
    assert ran.json["lacking"][0] == "0001_answers"
    told = bare_cli("migrate", "--check", "--dsn", fresh_database.ops, code=3)
    assert "ragcache migrate" in told.out
    sql = bare_cli("migrate", "--sql", "--dsn", fresh_database.ops)
    assert "CREATE TABLE ragcache.entry" in sql.out
    applied = bare_cli("migrate", "--json", "--dsn", fresh_database.ops)
    assert applied.json["applied"] == ran.json["lacking"]
    assert bare_cli("migrate", "--check", "--dsn", fresh_database.ops).code == 0


# --- maintain ----------------------------------------------------------------------------------


async def test_maintain_removes_what_has_expired_and_says_how_much(cli, store, tenant):
    asked = request(tenant)
    old = entry(asked, expire_at=asked_long_ago())
    assert await store.put(old, await store.snapshot(old.scope, ())) == ""
    done = cli("maintain", "--json").json
    assert done["swept"] >= 1
    assert set(done) == {"swept", "evicted", "documents", "records", "built", "dropped"}
    assert "0 swept" in cli("maintain").err


def asked_long_ago():
    from datetime import UTC, datetime

    return datetime(2020, 1, 1, tzinfo=UTC)


# --- watch -------------------------------------------------------------------------------------


async def test_watch_invalidates_when_the_teams_own_table_changes(cli, store, tenant, postgres):
    from ragcache.types import Document

    document = Document(text="The fee is 80.", id=f"{tenant}-d1")
    with psycopg.connect(postgres.admin, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS cli_documents (id text, document text, t text)"
        )
        connection.execute(
            "INSERT INTO cli_documents VALUES (%s, %s, %s)", (document.id, document.text, tenant)
        )
    asked = request(tenant, documents=(document,))
    made = entry(asked)
    assert await store.put(made, await store.snapshot(made.scope, asked.documents)) == ""
    named = ("public.cli_documents", "--dsn", postgres.admin)
    assert "cli_documents" in cli("watch", *named, "--tenant-column", "t").out
    with psycopg.connect(postgres.admin, autocommit=True) as connection:
        connection.execute("UPDATE cli_documents SET document = 'The fee is 90.'")
    found = await store.find_exact(scope(asked), keys(asked), now=made.created_at)
    assert not any(c.current for c in found)
    assert "no longer watched" in cli("watch", *named, "--remove").out


def test_watch_never_guesses_the_tenant(cli):
    ran = cli("watch", "documents", code=2)
    assert "--tenant-column" in ran.err


def test_watch_tells_which_dsn_it_needs(cli):
    ran = cli("watch", "documents", "--tenant-column", "t", code=1)
    assert "RAGCACHE_ADMIN_DSN" in ran.err


# --- reembed -----------------------------------------------------------------------------------


async def test_reembed_uses_the_embedder_of_the_settings_and_goes_on_where_it_ended(
    cli, store, tenant, monkeypatch
):
    from ragcache import factory
    from tests.doubles.embedder import TableEmbedder

    monkeypatch.setattr(factory, "embedder_from", lambda settings: TableEmbedder())
    cli.env["RAGCACHE_SECURITY__SIGNING_KEYS"] = '{"k1": "a secret of the tests"}'
    for number in range(3):
        made = KEYRING.sign(entry(request(tenant, question=f"question {number}")))
        assert await store.put(made, await store.snapshot(made.scope, ())) == ""
    first = cli("reembed", "--tenant", tenant, "--batch", 2, "--json").json
    assert (first["done"], first["skipped"], first["refused"]) == (3, 0, 0)
    assert first["embedder"] == TableEmbedder().id
    again = cli("reembed", "--tenant", tenant, "--json").json
    assert again["done"] == 0


async def test_reembed_leaves_alone_what_it_cannot_vouch_for(cli, store, tenant, monkeypatch):
    from ragcache import factory
    from tests.doubles.embedder import TableEmbedder

    monkeypatch.setattr(factory, "embedder_from", lambda settings: TableEmbedder())
    cli.env["RAGCACHE_SECURITY__SIGNING_KEYS"] = '{"k1": "a secret of the tests"}'
    made = entry(request(tenant))
    assert await store.put(made, await store.snapshot(made.scope, ())) == ""
    told = cli("reembed", "--tenant", tenant)
    assert "0 questions embedded" in told.out
    assert "1 are not signed by security.signing_keys" in told.out


def test_reembed_without_an_embedder_says_which_setting_is_missing(cli):
    ran = cli("reembed", code=1, RAGCACHE_EMBEDDING__MODEL="")
    assert "embedding.model" in ran.err


# --- how the database is found -----------------------------------------------------------------


def test_a_missing_ops_dsn_is_told_with_the_way_to_set_it(bare_cli, postgres):
    ran = bare_cli("stats", code=1, RAGCACHE_STORE__DSN=postgres.app)
    assert "store.ops_dsn" in ran.err
    assert "RAGCACHE_STORE__OPS_DSN" in ran.err


def test_an_unreachable_database_is_told_without_the_password(bare_cli):
    dsn = "postgresql://ragcache_ops:hunter2@127.0.0.1:1/rag"
    ran = bare_cli("stats", "--dsn", dsn, code=1)
    assert "error:" in ran.err
    assert "hunter2" not in ran.err
    assert "Traceback" not in ran.err


def test_a_settings_file_that_is_missing_is_named(bare_cli):
    assert "nowhere.toml" in bare_cli("stats", "--config", "nowhere.toml", code=1).err
