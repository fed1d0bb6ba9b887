"""What an operator, or the team's own ingestion, tells the cache: documents and corpora changed."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ConfigError, MissingTenantError
from ..layout import PrefixForest
from ..protocols import Store
from ..types import TenantId
from .parts import Parts


class Documents:
    """Tells the cache that documents changed: the answers built from them are never served again.

    A name is what the documents carry: their id or their source.
    """

    def __init__(self, parts: Parts, forest: PrefixForest) -> None:
        self._parts = parts
        self._forest = forest

    async def changed(self, tenant: str, names: Sequence[str]) -> int:
        """Kill exactly the answers with one of these documents in their lineage; return how many.

        Unlike a lookup this is not passed by: until it has returned, nothing is promised.

        Raises:
            MissingTenantError: The tenant is empty.
            StoreUnavailableError: The store could not be told; tell it again.
        """
        self._forest.forget(names)
        return await _store(self._parts).change(_tenant(tenant), names)

    async def removed(self, tenant: str, names: Sequence[str]) -> int:
        """Say that documents are gone; an id that is given out anew inherits nothing."""
        return await self.changed(tenant, names)


class Epoch:
    """The operator's way to kill a whole namespace."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def bump(self, tenant: str, namespace: str = "default") -> int:
        """Kill every entry of a namespace; return its new epoch.

        Raises:
            MissingTenantError: The tenant is empty.
            StoreUnavailableError: The store could not be told; tell it again.
        """
        return await _store(self._parts).bump_epoch(_tenant(tenant), namespace)


def _store(parts: Parts) -> Store:
    if parts.store is None:
        raise ConfigError("there is no store: set store.kind")
    return parts.store


def _tenant(tenant: str) -> TenantId:
    if not tenant.strip():
        raise MissingTenantError
    return TenantId(tenant)
