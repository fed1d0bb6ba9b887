"""Settings load from a file, the environment and arguments, and say what is wrong with them."""

from __future__ import annotations

import pytest

from ragcache.errors import ConfigError
from ragcache.factory import RagCache
from ragcache.settings import Settings


def write(tmp_path, text: str):
    path = tmp_path / "ragcache.toml"
    path.write_text(text)
    return path


def test_a_file_the_environment_and_arguments_are_read_in_this_order(tmp_path, monkeypatch):
    path = write(tmp_path, '[api]\nbase_url = "http://file/v1"\n[model]\nname = "file"\n')
    monkeypatch.setenv("RAGCACHE_MODEL__NAME", "environment")
    settings = Settings.load(path, store={"pool_size": 3})
    assert settings.api.base_url == "http://file/v1"
    assert settings.model.name == "environment"
    assert settings.store.pool_size == 3


def test_an_unknown_setting_is_named_with_the_nearest_known_one(tmp_path):
    with pytest.raises(ConfigError, match=r"'lokup'.*'lookup'"):
        Settings.load(write(tmp_path, "[lokup]\nthreshold = 0.9\n"))
    with pytest.raises(ConfigError, match=r"'api.base_ulr'.*'api.base_url'"):
        Settings.load(write(tmp_path, '[api]\nbase_ulr = "x"\n'))


def test_a_wrong_value_is_named_without_its_content(tmp_path):
    with pytest.raises(ConfigError, match=r"store\.pool_size") as error:
        Settings.load(write(tmp_path, '[store]\npool_size = -7\ndsn = "secret-dsn"\n'))
    assert "secret-dsn" not in str(error.value)


def test_an_unknown_policy_field_is_named():
    settings = Settings.load(
        store={"kind": "none"}, embedding={"model": ""}, lookup={"treshold": 1}
    )
    with pytest.raises(ConfigError, match=r"\[lookup\].*treshold"):
        RagCache.open(settings)


def test_a_missing_or_malformed_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.toml"):
        Settings.load(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="malformed"):
        Settings.load(write(tmp_path, "[api\n"))


def test_secrets_are_masked(tmp_path):
    settings = Settings.load(write(tmp_path, '[api]\napi_key = "sk-very-secret"\n'))
    assert "sk-very-secret" not in repr(settings)
    assert settings.api.key() == "sk-very-secret"


def test_a_store_may_be_named_in_one_word_or_two(tmp_path, monkeypatch):
    assert Settings.load(write(tmp_path, 'store = "redis"\n')).store.kind == "redis"
    both = write(tmp_path, 'store = ["redis", "postgres"]\n')
    assert Settings.load(both).store.kind == ("redis", "postgres")
    monkeypatch.setenv("RAGCACHE_STORE__REDIS_DSN", "redis://secret@host")
    settings = Settings.load(both, store={"kind": ["redis", "postgres"], "pool_size": 3})
    assert settings.store.redis_dsn.get_secret_value() == "redis://secret@host"
    assert "secret@" not in repr(settings)
    with pytest.raises(ConfigError, match=r"store\.kind"):
        Settings.load(store=["postgres", "redis"])


def test_a_redis_needs_a_dsn_and_a_key_that_its_processes_share(tmp_path):
    with pytest.raises(ConfigError, match=r"store\.redis_dsn"):
        RagCache.open(Settings.load(store="redis", embedding={"model": ""}))
    store = {"kind": "redis", "redis_dsn": "redis://localhost"}
    with pytest.raises(ConfigError, match="sign with the same key"):
        RagCache.open(Settings.load(store=store, embedding={"model": ""}))
    home = {**store, "home": tmp_path / "new" / "home"}
    assert RagCache.open(Settings.load(store=home, embedding={"model": ""}))
    assert (tmp_path / "new" / "home" / "signing.key").stat().st_mode & 0o777 == 0o600
