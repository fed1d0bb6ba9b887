"""Hear of invalidations that other processes, or the team's own transactions, have made."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from hashlib import sha256

from .rows import storable

#: A payload of NOTIFY holds 8,000 bytes.
_NAMES_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something of a tenant is no longer servable.

    Args:
        kind: "change" (documents), "epoch" (a namespace), "purge" or "quarantine".
        digest: SHA-256 of the tenant in hex: whoever may connect can listen.
        names: Digests of the documents that changed; empty where the notice does not say which.
    """

    kind: str
    digest: str
    names: tuple[str, ...] = ()

    def concerns(self, tenant: str) -> bool:
        """Return whether it is about this tenant."""
        return self.digest == digest_of(tenant)


def notice(kind: str, tenant: str, names: Iterable[str] = ()) -> str:
    """Return the payload that tells other processes: digests, no name of tenant or document."""
    fields: dict[str, object] = {"kind": kind, "tenant": digest_of(tenant)}
    digests = [name_digest(tenant, name) for name in names]
    if 0 < len(digests) <= _NAMES_MAX:
        fields["names"] = digests
    return json.dumps(fields, separators=(",", ":"))


def digest_of(tenant: str) -> str:
    """Return the SHA-256 of a tenant's name in hex, by which others are told of it."""
    return sha256(storable(tenant).encode()).hexdigest()


def name_digest(tenant: str, name: str) -> str:
    """Return the digest of a document's name, another one in every tenant.

    128 bits: two names with one digest would be invalidated together, never missed.
    """
    framed = f"{digest_of(tenant)}{storable(name)}"
    return sha256(framed.encode()).hexdigest()[:32]


async def notices(dsn: str) -> AsyncGenerator[Notice, None]:
    """Yield notices as they are committed, on a connection of its own.

    It needs a session: not through a pooler in transaction mode. What is kept in memory on the
    strength of it must be dropped when this raises, since notices may have been missed.

    Raises:
        StoreUnavailableError: The connection was lost.
    """
    import psycopg

    from .errors import translated

    with translated():
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute("LISTEN ragcache")
            async for message in connection.notifies():
                if (heard := parsed(message.payload)) is not None:
                    yield heard


def parsed(payload: str) -> Notice | None:
    """Return the notice of a payload; None where somebody else wrote it."""
    try:
        fields = json.loads(payload)
        names = tuple(str(name) for name in fields.get("names", ()))
        return Notice(kind=str(fields["kind"]), digest=str(fields["tenant"]), names=names)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
