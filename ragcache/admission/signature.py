"""Signed entries: a row that somebody altered is a miss.

What is signed: all that decides what is served, to whom and until when.

Not signed: the id (a store may keep the old one when it replaces an entry), the bookkeeping of
hits, and the vector: a store may keep it in half precision. A vector that somebody moved can
bring an entry up for a question, but the reading is signed, with a sentence vector of its own,
and the gates read that. Nor the state: promotion and quarantine are acts of the operator's
database role, which holds no key. Whoever can write rows can at most move a genuine answer
between states.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..errors import ConfigError, RequestError
from ..keys import encode
from ..types import Entry

SIGNATURE_SCHEMA = 1
_MIN_KEY_BYTES = 16


class KeyRing:
    """HMAC-SHA256 keys by id: signs with the current one, accepts every listed one.

    To rotate, add a key and make it current; drop the old one when its entries have expired.
    A dropped key makes its entries misses. The algorithm is fixed: nothing stored names it.

    Raises:
        ConfigError: No key, an unknown current id, or a key shorter than 16 bytes.
    """

    __slots__ = ("_current", "_keys")

    def __init__(self, keys: Mapping[str, bytes], current: str) -> None:
        if current not in keys:
            raise ConfigError(f"the key ring holds no key {current!r}: name one of its ids")
        short = [kid for kid, key in keys.items() if len(key) < _MIN_KEY_BYTES]
        if short or not all(keys):
            raise ConfigError(f"signing keys {short!r} are too short: use at least 16 bytes")
        self._keys = dict(keys)
        self._current = current

    def __repr__(self) -> str:
        return f"KeyRing({sorted(self._keys)}, current={self._current!r})"

    @property
    def current(self) -> str:
        """The id of the key that signs."""
        return self._current

    def sign(self, entry: Entry) -> Entry:
        """Return the entry signed with the current key.

        Raises:
            RequestError: The answer or the reading holds a value that is not plain JSON.
        """
        named = replace(entry, kid=self._current)
        return replace(named, signature=_mac(self._keys[self._current], named))

    def verify(self, entry: Entry) -> bool:
        """Return whether the entry is as it was signed, by a key still on the ring."""
        key = self._keys.get(entry.kid) if isinstance(entry.kid, str) else None
        if key is None or not isinstance(entry.signature, bytes):
            return False
        try:
            return hmac.compare_digest(_mac(key, entry), entry.signature)
        except (RequestError, TypeError, ValueError, AttributeError, RecursionError, OverflowError):
            return False  # a row that cannot be encoded was never signed


def _mac(key: bytes, entry: Entry) -> bytes:
    return hmac.new(key, b"ragcache/entry/1" + encode(_signed(entry)), hashlib.sha256).digest()


def _signed(entry: Entry) -> list[Any]:
    return [
        SIGNATURE_SCHEMA,
        entry.kid,
        entry.scope,
        entry.keys,
        entry.question,
        _plain(entry.reading),
        entry.embedder,
        _plain(entry.answer),
        list(entry.lineage),
        entry.version,
        entry.model,
        _microseconds(entry.created_at),
        _microseconds(entry.expire_at),
    ]


def _plain(value: Any) -> Any:
    """Numbers as a database may give them back: 1.0 and 1 are the same JSON number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def _microseconds(moment: datetime) -> int:
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
