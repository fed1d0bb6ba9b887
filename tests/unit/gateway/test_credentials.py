from __future__ import annotations

import hashlib
import os

import pytest

from ragcache.errors import ConfigError
from ragcache.gateway import credentials
from ragcache.gateway.credentials import Credentials, StaticKeys, read_keys
from ragcache.gateway.faults import Fault


def row(key: str, tenant: str, more: str = "") -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()
    return f'[[keys]]\nsha256 = "{digest}"\ntenant = "{tenant}"\n{more}\n'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys.toml"


def test_a_key_carries_tenant_principal_and_access(path):
    path.write_text(row("k1", "acme", 'principal = "bot"\naccess = ["hr"]') + row("k2", "globex"))
    keys = Credentials(verifiers=[StaticKeys(path)])
    one, two = keys.caller("Bearer k1"), keys.caller("bearer k2")
    assert (one.tenant, one.principal, one.access) == ("acme", "bot", {"hr"})
    assert (two.tenant, two.principal, two.access) == ("globex", None, set())
    with pytest.raises(Fault):
        keys.caller("Bearer k3")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "keys = 3",
        "not toml",
        '[[keys]]\nsha256 = "short"\ntenant = "a"',
        row("k", ""),
        row("k", "a", 'key = "in the clear"'),
        row("k", "a") + row("k", "b"),
    ],
)
def test_a_wrong_file_is_refused_and_holds_no_key_in_its_message(path, text):
    path.write_text(text)
    with pytest.raises(ConfigError, match="key"):
        read_keys(path)


def test_a_file_that_is_missing_is_refused(path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keys(path)


def test_a_key_that_was_taken_back_opens_nothing(path, monkeypatch):
    monkeypatch.setattr(credentials, "_LOOK_EVERY_S", 0.0)
    path.write_text(row("k1", "acme"))
    keys = StaticKeys(path)
    assert keys.caller("k1")
    path.write_text(row("k2", "acme"))
    os.utime(path, ns=(1, 1))
    assert keys.caller("k1") is None
    assert keys.caller("k2")


def test_a_file_broken_while_it_runs_leaves_the_old_keys_in_force(path, monkeypatch):
    monkeypatch.setattr(credentials, "_LOOK_EVERY_S", 0.0)
    path.write_text(row("k1", "acme"))
    keys = StaticKeys(path)
    path.write_text("[[keys")
    os.utime(path, ns=(1, 1))
    assert keys.caller("k1")
