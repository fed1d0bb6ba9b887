"""No tenant ever sees another's answers: random operations over every kind of store.

Pools are small, so that connections change hands all the time; calls are cancelled in the
middle, connections are broken off; with Postgres, one of the two ways leads through a transaction
pooler, and the tables are read around the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from ragcache.protocols import Store
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from tests.fixtures_redis import RedisServer
from tests.isolation_world import QUESTIONS, TENANTS, World
from tests.store_kinds import KINDS

WHO = st.integers(0, TENANTS - 1)
WHAT = st.integers(0, QUESTIONS - 1)
WAY = st.integers(0, 1)
STEPS = 50
#: Of one run of Hypothesis: how many operations come of it is seen only afterwards.
EXAMPLES = 200


class Isolation(RuleBasedStateMachine):
    """Tenants who share everything but their name, over two ways to one database."""

    runner: ClassVar[asyncio.Runner]
    stores: ClassVar[Sequence[Store]]
    admin_dsn: ClassVar[str]
    #: Breaks every connection off, as a failing server does.
    breaking: ClassVar[Callable[[World], None]]
    operations: ClassVar[int] = 0
    hits: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = World(self.stores, self.admin_dsn)

    def teardown(self) -> None:
        type(self).operations += self.world.operations
        type(self).hits += self.world.hits

    def do(self, name: str, way: int, *arguments: int) -> None:
        store = self.stores[way % len(self.stores)]
        self.runner.run(self.world.run(name, store, *arguments))

    def around(self, name: str, way: int, *arguments: int) -> None:
        """Do something with the database itself, where there is one."""
        if databases := self.world.databases:
            self.runner.run(self.world.run(name, databases[way % len(databases)], *arguments))

    @initialize(way=WAY)
    def begin(self, way: int) -> None:
        """Everybody has something to lose from the start."""
        for who in range(TENANTS):
            self.do("put", way, who, 0)

    @rule(way=WAY, who=WHO, what=WHAT)
    def put(self, way: int, who: int, what: int) -> None:
        self.do("put", way, who, what)

    @rule(way=WAY, who=WHO, what=WHAT)
    def find(self, way: int, who: int, what: int) -> None:
        self.do("find", way, who, what)

    @rule(way=WAY, who=WHO, what=WHAT)
    def find_similar(self, way: int, who: int, what: int) -> None:
        self.do("find_similar", way, who, what)

    @rule(way=WAY, who=WHO)
    def read_all(self, way: int, who: int) -> None:
        self.around("read_all", way, who)

    @rule(way=WAY)
    def read_stray(self, way: int) -> None:
        self.around("read_stray", way)

    @rule(way=WAY, who=WHO, whose=WHO)
    def write_foreign(self, way: int, who: int, whose: int) -> None:
        self.around("write_foreign", way, who, whose)

    @rule(way=WAY, who=WHO, whose=WHO)
    def take_turns(self, way: int, who: int, whose: int) -> None:
        self.do("take_turns", way, who, whose)

    @rule(who=WHO, whose=WHO)
    def lock(self, who: int, whose: int) -> None:
        self.world.lock(who, whose)

    @rule(way=WAY, who=WHO, what=WHAT)
    def change(self, way: int, who: int, what: int) -> None:
        self.do("change", way, who, what)

    @rule(way=WAY, who=WHO, seldom=st.integers(0, 4))
    def bump(self, way: int, who: int, seldom: int) -> None:
        if not seldom:
            self.do("bump", way, who)

    @rule(way=WAY, who=WHO, seldom=st.integers(0, 4))
    def purge(self, way: int, who: int, seldom: int) -> None:
        if not seldom:
            self.do("purge", way, who)

    @rule(way=WAY, who=WHO, what=WHAT, ticks=st.integers(1, 12))
    def cancelled(self, way: int, who: int, what: int, ticks: int) -> None:
        self.do("cancelled", way, who, what, ticks)

    @rule(seldom=st.integers(0, 60))
    def break_connections(self, seldom: int) -> None:
        if not seldom:
            type(self).breaking(self.world)


def run_machine(
    stores: Sequence[Store],
    operations: int,
    *,
    breaking: Callable[[World], None],
    admin_dsn: str = "",
) -> type[Isolation]:
    """Run at least so many random operations; return the machine's class with its counts."""
    with asyncio.Runner() as runner:
        for store in stores:
            runner.run(store.open())
        given = {"runner": runner, "stores": stores, "admin_dsn": admin_dsn}
        machine = type("Machine", (Isolation,), {**given, "breaking": staticmethod(breaking)})
        while machine.operations < operations:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=min(EXAMPLES, 1 + (operations - machine.operations) // STEPS),
                    stateful_step_count=STEPS,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        for store in stores:
            runner.run(store.close())
    return machine


def run_on_postgres(dsns: Dsns, ways: list[str], operations: int) -> type[Isolation]:
    """Run over two ways to one Postgres."""
    stores = [PostgresStore(way, pool_size=2, pool_wait_s=10, lookup_timeout_s=10) for way in ways]
    return run_machine(stores, operations, breaking=World.break_connections, admin_dsn=dsns.admin)


@pytest.fixture(params=["redis-sets", "redis-search", "redis-bare", "pair"])
def run_on_others(request: pytest.FixtureRequest) -> Callable[[int], type[Isolation]]:
    """Run over two stores of another kind; its Redis breaks connections off."""
    make = KINDS[request.param].prepare(request)
    kind = "bare" if request.param == "pair" else request.param.removeprefix("redis-")
    server: RedisServer = request.getfixturevalue(f"redis_{kind}")

    def break_off(_: World) -> None:
        with server.client() as client:
            client.execute_command("CLIENT KILL", "TYPE", "NORMAL", "SKIPME", "YES")

    def run(operations: int) -> type[Isolation]:
        return run_machine([make(), make()], operations, breaking=break_off)

    return run


@pytest.mark.timeout(400)
def test_no_tenant_sees_another_in_five_thousand_operations(postgres: Dsns, pgbouncer: str):
    machine = run_on_postgres(postgres, [postgres.app, pgbouncer], 5_000)
    assert machine.operations >= 5_000
    print(f"{machine.operations} operations, {machine.hits} answers found")
    assert machine.hits >= 50, "too little was found for the test to mean anything"


@pytest.mark.prove  # minutes for each kind of store
@pytest.mark.timeout(400)
def test_no_tenant_sees_another_in_two_thousand_operations_of_any_other_store(
    request, run_on_others
):
    # The two that have vectors differ in how they search alone.
    count = 400 if "search" in request.node.name else 2_000
    machine = run_on_others(count)
    print(f"{machine.operations} operations, {machine.hits} answers found")
    assert machine.operations >= count
    assert machine.hits >= 10, "too little was found for the test to mean anything"


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_no_tenant_sees_another_in_a_hundred_thousand_operations(postgres: Dsns, pgbouncer: str):
    machine = run_on_postgres(postgres, [postgres.app, pgbouncer], 100_000)
    assert machine.operations >= 100_000


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_no_tenant_sees_another_in_twenty_thousand_operations_of_any_other_store(run_on_others):
    machine = run_on_others(20_000)
    print(f"{machine.operations} operations, {machine.hits} answers found")
    assert machine.operations >= 20_000
    assert machine.hits >= 200
