"""LangChain's own standard tests: raw, composed and same-class models pass the same ones.

The suites carry no documents: they show that a wrapped model is transparent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from langchain_ragcache import RagCacheChatModel, wrap
from ragcache.pipeline import Pipeline, Policies
from ragcache.portal import Portal
from ragcache.store.postgres import PostgresStore
from ragcache.store.roles import Dsns
from tests.doubles.brain import Brain
from tests.doubles.upstream import serving
from tests.fixtures_langchain import Chats
from tests.fixtures_pipeline import KEYRING, PATIENT

#: Of the provider's client and of old schema classes, raw and wrapped alike.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Of langchain-openai, for the raw model too: a v1 schema goes another way.
    pytest.mark.filterwarnings("ignore:Received a Pydantic BaseModel V1 schema"),
]


@pytest.fixture(scope="module")
def one_brain() -> Iterator[Brain]:
    """One provider for all: starting one takes longer than a test."""
    with serving(Brain()) as running:
        yield running


@pytest.fixture(scope="module")
def one_portal(postgres: Dsns) -> Iterator[Portal]:
    """One cache for all, each test a tenant of its own."""
    store = PostgresStore(postgres.app, pool_wait_s=10.0, lookup_timeout_s=10.0)
    policies = Policies(budgets=PATIENT)
    with Portal(lambda: Pipeline(store=store, keyring=KEYRING, policies=policies)) as portal:
        yield portal


class _Standard:
    """What the fake provider can do."""

    chat_model_class: type[BaseChatModel] = ChatOpenAI
    returns_usage_metadata = True
    supports_json_mode = True
    has_tool_choice = True
    supports_model_override = True
    model_override_value = "another"
    enable_vcr_tests = False

    @pytest.fixture(autouse=True)
    async def _places(self, one_brain, one_portal, tenant) -> AsyncIterator[None]:
        self.openai = Chats(one_brain.base_url)
        self.cache = {"cache": one_portal, "tenant": tenant}
        yield
        await self.openai.close()

    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {}

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "fake", "api_key": "unused", "base_url": self.openai.base_url}

    @pytest.fixture
    def model(self, request: pytest.FixtureRequest) -> BaseChatModel:
        return self.made(self.openai(**(getattr(request, "param", None) or {})))

    def made(self, model: ChatOpenAI) -> BaseChatModel:
        return model


class _Raw(_Standard):
    pass


class _Composed(_Standard):
    chat_model_class = RagCacheChatModel

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"inner": self.openai(), **self.cache}

    def made(self, model: ChatOpenAI) -> BaseChatModel:
        return RagCacheChatModel(inner=model, **self.cache)


class _SameClass(_Standard):
    def made(self, model: ChatOpenAI) -> BaseChatModel:
        return wrap(model, **self.cache, keep_class=True)


class TestRawUnit(_Raw, ChatModelUnitTests):
    pass


class TestRawIntegration(_Raw, ChatModelIntegrationTests):
    pass


class TestComposedUnit(_Composed, ChatModelUnitTests):
    pass


class TestComposedIntegration(_Composed, ChatModelIntegrationTests):
    pass


class TestSameClassUnit(_SameClass, ChatModelUnitTests):
    pass


class TestSameClassIntegration(_SameClass, ChatModelIntegrationTests):
    pass
