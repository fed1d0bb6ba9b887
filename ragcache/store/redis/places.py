"""Where things are kept: the names of keys, each inside its tenant.

    rc1:{<tenant>}:clock      numbers: the last one given, the floor, each namespace's epoch
    rc1:{<tenant>}:changed    documents that changed, by number
    rc1:{<tenant>}:e:<id>     an entry
    rc1:{<tenant>}:x:<key>    ids under an exact key;    m: under a normal one
    rc1:{<tenant>}:n:<name>   ids of entries that a document's name (a digest of it) can kill
    rc1:{<tenant>}:u:<space>  ids of a namespace by last use;    t: by expiry
    rc1:{<tenant>}:v:<place>  vectors of one partition and embedder
    rc1:{<tenant>}:w:<who>    what a principal has left;    s: a state;    l: a turn

The tenant stands for itself by a digest of fixed length, so that no name can run into what
follows it, and in braces, which make it the hash slot of a cluster: all of a tenant's keys lie on
one server, and a script may touch several of them at once.
"""

from __future__ import annotations

from ...errors import MissingTenantError
from ...keys import fingerprint
from ...types import Fingerprint, Scope
from ..notices import digest_of
from ..rows import storable


def prefix(tenant: str) -> str:
    """Return what every key of a tenant begins with.

    Raises:
        MissingTenantError: The tenant is empty.
    """
    if not tenant:
        raise MissingTenantError
    return prefix_of(digest_of(tenant))


def prefix_of(digest: str) -> str:
    """Return the same from the digest that stands in a notice."""
    return f"rc1:{{{digest}}}:"


def writer(tenant: str, principal: str) -> Fingerprint:
    """Return how a principal is named in keys and conditions: never in clear."""
    return fingerprint("ragcache/redis/writer/1", tenant, principal)


def place(scope: Scope, embedder: str, dimensions: int) -> Fingerprint:
    """Return where the vectors that may be compared with each other are kept."""
    return fingerprint(
        "ragcache/redis/place/1",
        scope.tenant,
        scope.group,
        scope.namespace,
        scope.partition,
        embedder,
        dimensions,
    )


def space(scope: Scope) -> str:
    """Return how the namespace is named in keys."""
    return storable(scope.namespace)


def state(kind: str, key: str) -> Fingerprint:
    """Return how a state is named in keys."""
    return fingerprint("ragcache/redis/state/1", kind, key)
