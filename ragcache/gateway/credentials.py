"""Who asks: only a verified credential says so, never a header or a body of the caller's making.

A file of static keys holds hashes of them:

    [[keys]]
    id = "acme-app"                 # for the log
    sha256 = "9f86d081884c7d65..."  # of the key, in hex
    tenant = "acme"
    principal = "support-bot"       # optional: who asks inside the tenant
    access = ["public", "hr"]       # optional: tags of documents that this key may be answered from
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import ConfigError
from .faults import unauthenticated

_log = logging.getLogger("ragcache")

_BEARER = re.compile(r"bearer +([^\s]+) *", re.I)
#: How long a change of the file may go unnoticed.
_LOOK_EVERY_S = 2.0
_NAME = r"^[^\x00-\x1f\x7f]{1,256}$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whose request it is, as a credential proves."""

    tenant: str
    principal: str | None = None
    access: frozenset[str] = frozenset()


class Verifier(Protocol):
    """Knows one kind of credential."""

    def caller(self, token: str) -> Caller | None:
        """Return who holds this token, None where it is not of this kind. Raises Fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The kinds of credential that this gateway takes."""

    verifiers: Sequence[Verifier]

    def caller(self, authorization: str | None) -> Caller:
        """Return who asks, by the `Authorization` header of a request.

        Raises:
            Fault: 401, for a credential that is missing, malformed or not known.
        """
        if not authorization:
            raise unauthenticated(
                "no credential: send 'Authorization: Bearer KEY'", "missing_api_key"
            )
        found = _BEARER.fullmatch(authorization)
        if found is None:
            raise unauthenticated("the Authorization header must be 'Bearer KEY'")
        for verifier in self.verifiers:
            caller = verifier.caller(found[1])
            if caller is not None:
                return caller
        raise unauthenticated("this key is not known here")


# --- static keys -------------------------------------------------------------------------------


class _Key(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern="^[0-9a-fA-F]{64}$")
    tenant: str = Field(pattern=_NAME)
    id: str = ""
    principal: str | None = Field(default=None, pattern=_NAME)
    access: frozenset[str] = frozenset()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: tuple[_Key, ...] = Field(min_length=1)


class StaticKeys:
    """The keys of a file. A file that was changed is read again, so that a key can be taken back.

    Raises:
        ConfigError: The file cannot be read, or is malformed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys = read_keys(path)
        self._read_at_ns = _changed_ns(path)
        self._looked_s = time.monotonic()

    def caller(self, token: str) -> Caller | None:
        """Return who holds this key.

        Every hash is compared, and each in constant time: how long it takes tells nothing.
        """
        self._look()
        digest = hash_of(token)
        found = None
        for known, caller in self._keys:
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    def _look(self) -> None:
        """Read the file again where it was changed; a broken one leaves the old keys in force."""
        if time.monotonic() - self._looked_s < _LOOK_EVERY_S:
            return
        self._looked_s = time.monotonic()
        changed_ns = _changed_ns(self._path)
        if changed_ns == self._read_at_ns:
            return
        try:
            self._keys, self._read_at_ns = read_keys(self._path), changed_ns
        except ConfigError as error:
            _log.warning("the keys read before stay in force: %s", error)


def hash_of(key: str) -> bytes:
    """Return what the file holds of a key. Keys are long and random: they need no slow hash."""
    return hashlib.sha256(key.encode()).digest()


def read_keys(path: Path) -> tuple[tuple[bytes, Caller], ...]:
    """Read a file of keys.

    Raises:
        ConfigError: It cannot be read, is malformed, or gives one key to two callers.
    """
    try:
        file = _File(**tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"keys file {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise ConfigError(
            f"wrong keys in {path}: {_told(error.errors(include_input=False))}"
        ) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"keys file {path} is malformed: {error}") from error
    hashes = [key.sha256.lower() for key in file.keys]
    if len(set(hashes)) != len(hashes):
        raise ConfigError(f"keys file {path} holds the same key twice: each must be one caller's")
    return tuple((bytes.fromhex(key.sha256), _caller(key)) for key in file.keys)


def _caller(key: _Key) -> Caller:
    return Caller(tenant=key.tenant, principal=key.principal, access=key.access)


def _told(errors: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in errors)


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # gone, or being replaced just now: read_keys tells it where it matters
        return 0
