"""Which stored answers an operator means, whatever store they are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from ..keys import raw_hash
from .rows import raw_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which entries: every criterion given must hold.

    Args:
        tenant: Only this tenant's; every tenant's where None.
        namespace, model, version, embedder, entry: As stored with the entry.
        writer: The principal who asked when it was stored.
        document: A name (id or source) of a document the answer came from.
        older_than: Stored before this moment.
    """

    tenant: str | None = None
    namespace: str | None = None
    model: str | None = None
    version: str | None = None
    embedder: str | None = None
    entry: str | None = None
    writer: str | None = None
    document: str | None = None
    older_than: datetime | None = None

    def criteria(self) -> dict[str, Any]:
        """Return what was given, the tenant aside."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "tenant"}
        return {name: value for name, value in given.items() if value is not None}

    def __str__(self) -> str:
        """Describe the selection for the audit; a person's name goes by its hash."""
        shown = {
            name: raw_name(raw_hash(str(value))) if name == "writer" else str(value)
            for name, value in self.criteria().items()
        }
        return ", ".join(f"{name}={value}" for name, value in shown.items()) or "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """How many entries of each tenant were taken, or would be."""

    entries: Mapping[str, int] = field(default_factory=dict)
    dry_run: bool = False

    @property
    def total(self) -> int:
        """Return the sum over the tenants."""
        return sum(self.entries.values())
