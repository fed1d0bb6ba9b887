"""A broken cache never breaks a request; the status says what was passed by, and where."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path

import pytest

from ragcache.errors import ConfigError, MissingTenantError, StoreError, TargetError
from ragcache.pipeline import Budgets
from ragcache.store.embedded import ensure
from ragcache.store.postgres import PostgresStore
from ragcache.targets.openai import OpenAITarget
from ragcache.types import Document, Request
from tests.doubles.embedder import TableEmbedder
from tests.doubles.upstream import Reply
from tests.fixtures_pipeline import PATIENT, until_asking

DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)


def ask(question: str = "What is the demurrage fee?", **fields) -> Request:
    return Request(**({"tenant": "acme", "question": question, "documents": DOCUMENTS} | fields))


@pytest.fixture
def own_postgres():
    """A server of the test's own, to be killed."""
    with tempfile.TemporaryDirectory(prefix="rc-own-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        home.chmod(0o711)
        ensured = ensure(home / "pg")
        yield ensured
        ensured.server.stop()


def over(ensured) -> PostgresStore:
    return PostgresStore(ensured.dsns.app, pool_wait_s=2.0, lookup_timeout_s=2.0)


async def test_postgres_killed_before_the_lookup_is_a_bypass(make, own_postgres):
    cache = await make(store=over(own_postgres))
    assert (await cache.answer(ask())).status.stored is True
    assert (await cache.answer(ask())).status.hit == "exact"
    own_postgres.server.stop()
    answer = await cache.answer(ask())
    assert answer.text == "The fee is 80."
    assert answer.status.fwd == "bypass"
    assert answer.status.reason == "store_error"
    assert answer.status.stored is False


async def test_postgres_killed_while_the_target_answers_is_a_miss_that_is_not_stored(
    make, upstream, own_postgres
):
    cache = await make(store=over(own_postgres))
    upstream.answer(Reply(delay_s=0.8))
    asking = asyncio.create_task(cache.answer(ask()))
    while not upstream.bodies:
        await asyncio.sleep(0.01)
    await asyncio.to_thread(own_postgres.server.stop)
    answer = await asking
    assert answer.text == "The fee is 80."
    assert answer.status.fwd == "miss"
    assert answer.status.stored is False
    assert answer.status.store_reason == "store_error"


async def test_a_store_that_is_down_at_start_comes_back_without_a_restart(
    make, own_postgres, caplog
):
    own_postgres.server.stop()
    cache = await make(store=over(own_postgres))
    assert (await cache.answer(ask())).status.fwd == "bypass"
    assert len([r for r in caplog.records if "caching is off" in r.message]) == 1
    await asyncio.to_thread(own_postgres.server.start)
    for _ in range(100):
        answer = await cache.answer(ask())
        if answer.status.hit:
            break
        await asyncio.sleep(0.1)
    assert answer.status.hit == "exact"


class _Hanging(TableEmbedder):
    async def embed(self, texts):
        await asyncio.sleep(60)


async def test_a_hanging_embedder_costs_its_deadline_and_no_more(make, tenant):
    budgets = Budgets(store_s=10.0, embed_s=0.2, put_s=0.0)
    cache = await make(embedder=_Hanging(), budgets=budgets)
    answer = await cache.answer(ask(tenant=tenant))
    assert answer.text == "The fee is 80."
    assert answer.status.reason == "embed_timeout"


class _Failing(TableEmbedder):
    async def embed(self, texts):
        raise RuntimeError("no weights")


async def test_with_a_failing_embedder_equal_questions_still_hit(make, tenant):
    cache = await make(embedder=_Failing(), budgets=PATIENT)
    assert (await cache.answer(ask(tenant=tenant))).status.reason == "embed_error"
    assert (await cache.answer(ask(tenant=tenant))).status.hit == "exact"


async def test_a_request_without_tenant_is_refused(make):
    cache = await make()
    with pytest.raises(MissingTenantError, match="tenant"):
        await cache.answer(ask(tenant=""))


async def test_an_unreachable_base_url_is_named(make, tenant):
    target = OpenAITarget(model="m", base_url="http://127.0.0.1:9/v1")
    cache = await make(target=target)
    with pytest.raises(TargetError, match=r"127\.0\.0\.1:9.*base_url"):
        await cache.answer(ask(tenant=tenant))
    await target.close()


async def test_no_target_at_all_is_named(make, tenant):
    cache = await make(target=None)
    with pytest.raises(ConfigError, match="no target"):
        await cache.answer(ask(tenant=tenant))


async def test_a_postgres_that_was_not_initialised_is_named(make, bare_database):
    with pytest.raises(StoreError, match="ragcache"):
        await make(store=PostgresStore(bare_database))


async def test_concurrent_equal_requests_are_one_call_and_the_leader_may_leave(
    make, upstream, tenant
):
    cache = await make()
    answer = threading.Event()
    upstream.answer(Reply(hold=answer))
    leader = asyncio.create_task(cache.answer(ask(tenant=tenant)))
    await until_asking(cache, 1)
    followers = [asyncio.create_task(cache.answer(ask(tenant=tenant))) for _ in range(19)]
    await until_asking(cache, 20)
    leader.cancel()
    answer.set()
    answers = await asyncio.gather(*followers)
    assert leader.cancelled()
    assert len(upstream.bodies) == 1
    assert len({id(a) for a in answers}) == 19
    assert all(a.status.collapsed for a in answers)
