"""Hosts whose chat templates refuse roles: one system message first and turns that alternate, or
no system message at all.
"""

from __future__ import annotations

import itertools
from typing import Any

from .upstream import Upstream


class StrictRoles(Upstream):
    """One system message, at the front, and user and assistant in turn."""

    def fault(self, body: dict[str, Any]) -> str:
        roles = [message["role"] for message in body["messages"]]
        turns = roles[1:] if roles[:1] == ["system"] else roles
        if "system" in turns or "developer" in roles:
            return f"a system message behind the first: {roles}"
        if any(one == two for one, two in itertools.pairwise(turns)):
            return f"turns that do not alternate: {roles}"
        return super().fault(body)


class NoSystem(Upstream):
    """No system message."""

    def fault(self, body: dict[str, Any]) -> str:
        if any(message["role"] in ("system", "developer") for message in body["messages"]):
            return "a system message"
        return super().fault(body)
