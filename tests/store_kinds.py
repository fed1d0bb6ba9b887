"""The kinds of stores that the contract of `ragcache.protocols.Store` is tested on.

Whoever writes a store adds a line to `KINDS`; `tests/integration/store/contract` does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from ragcache.protocols import Store
from ragcache.store.pair import PairStore
from ragcache.store.postgres import PostgresStore
from ragcache.store.redis.copies import RedisCopies
from ragcache.store.redis.store import RedisStore

#: Makes a store that is not open yet, over what all stores of one test share. Options: `quota`.
Make = Callable[..., Store]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How stores of one kind are made, and whether they search by likeness."""

    prepare: Callable[[pytest.FixtureRequest], Make]
    has_vectors: bool


#: A busy machine is waited for.
_PATIENT: Mapping[str, Any] = {"pool_wait_s": 10.0, "lookup_timeout_s": 10.0}


def _postgres(asking: pytest.FixtureRequest) -> Make:
    dsn = asking.getfixturevalue("postgres").app

    def made(**options: Any) -> Store:
        return PostgresStore(dsn, **{**_PATIENT, **options})

    return made


def _redis(kind: str) -> Callable[[pytest.FixtureRequest], Make]:
    def prepare(asking: pytest.FixtureRequest) -> Make:
        dsn = asking.getfixturevalue(f"redis_{kind}").dsn

        def made(**options: Any) -> Store:
            return RedisStore(dsn, **{**_PATIENT, **options})

        return made

    return prepare


def _pair(asking: pytest.FixtureRequest) -> Make:
    dsn = asking.getfixturevalue("postgres").app
    redis_dsn = asking.getfixturevalue("redis_bare").dsn

    def made(**options: Any) -> Store:
        truth = PostgresStore(dsn, **{**_PATIENT, **options})
        return PairStore(RedisCopies(redis_dsn, **_PATIENT), truth, dsn=dsn)

    return made


KINDS: Mapping[str, Kind] = {
    "postgres": Kind(prepare=_postgres, has_vectors=True),
    "redis-sets": Kind(prepare=_redis("sets"), has_vectors=True),
    "redis-search": Kind(prepare=_redis("search"), has_vectors=True),
    "redis-bare": Kind(prepare=_redis("bare"), has_vectors=False),
    "pair": Kind(prepare=_pair, has_vectors=True),
}
