"""What operators leave for running processes to read, among the states kept between requests.

A state that operators append to and processes only recall: each item has a number, so that a
process knows which of them it has read.
"""

from __future__ import annotations

import json
from datetime import datetime

from ..types import JsonObject
from .ops import connected, inside
from .queries import queries
from .rows import storable

_SQL = queries("state")


def append(
    ops_dsn: str,
    tenant: str,
    kind: str,
    key: str,
    item: JsonObject,
    *,
    expire_at: datetime,
    keep: int = 500,
) -> int:
    """Append an item to a state; return its number. The oldest beyond `keep` leave.

    The state is `{"last": number, "items": [[number, item], ...]}`.
    """
    values = {"tenant": storable(tenant), "kind": kind, "key": storable(key)}
    with connected(ops_dsn) as connection, inside(connection, tenant):
        connection.execute(_SQL["ensure"], {**values, "expire_at": expire_at})
        ((before,),) = connection.execute(_SQL["lock"], values).fetchall()
        number = int(before.get("last", 0)) + 1
        items = [*before.get("items", ()), [number, dict(item)]][-keep:]
        after = json.dumps({"last": number, "items": items})
        connection.execute(_SQL["replace"], {**values, "value": after, "expire_at": expire_at})
    return number
