"""`RagCacheLLMCache` under LangChain's own cache suites, and bound to its tenant."""

from __future__ import annotations

import pytest
from langchain_core.caches import BaseCache
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration
from langchain_tests.integration_tests import AsyncCacheTestSuite, SyncCacheTestSuite

from langchain_ragcache import RagCacheLLMCache
from langchain_ragcache.llm_cache import read, write
from ragcache.errors import MissingTenantError


class TestSync(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, portal, tenant) -> BaseCache:
        return RagCacheLLMCache(portal, tenant=tenant)


class TestAsync(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self, make, tenant) -> BaseCache:
        return RagCacheLLMCache(await make(), tenant=tenant)


def message(text: str, **fields) -> list[ChatGeneration]:
    said = AIMessage(text, response_metadata={"finish_reason": "stop"}, **fields)
    return [ChatGeneration(message=said)]


def test_only_the_same_prompt_of_the_same_tenant_is_answered(portal, tenant, table) -> None:
    cache = RagCacheLLMCache(portal, tenant=tenant)
    cache.update("The port opens early. When?", "model", message("It opens early."))
    assert cache.lookup("The port opens early. When?", "model")[0].message.text == "It opens early."
    assert cache.lookup("The port opens early. When? ", "model") is None
    assert cache.lookup("The port opens early. When?", "another model") is None
    other = RagCacheLLMCache(portal, tenant=f"{tenant}-other")
    assert other.lookup("The port opens early. When?", "model") is None
    assert table.texts == []


def test_tool_calls_are_never_stored(portal, tenant) -> None:
    cache = RagCacheLLMCache(portal, tenant=tenant)
    call = {"name": "pay", "args": {}, "id": "1"}
    cache.update("Pay the port.", "model", message("", tool_calls=[call]))
    assert cache.lookup("Pay the port.", "model") is None


def test_what_is_read_is_a_new_object_that_cost_nothing() -> None:
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    given = message("It opens early.", id="run-1", usage_metadata=usage)
    (found,) = read(write(given))
    assert found.message is not given[0].message
    assert found.message.id is None
    assert found.message.usage_metadata["total_tokens"] == 0
    assert found.message.text == given[0].message.text


def test_a_cache_without_a_tenant_is_refused(portal) -> None:
    with pytest.raises(MissingTenantError):
        RagCacheLLMCache(portal, tenant="")
