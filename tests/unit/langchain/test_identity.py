"""One resolver for the tenant: places in order, conflict is an error, none is None."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from langchain_core.runnables.config import var_child_runnable_config

from langchain_ragcache.identity import Identity, resolve, with_identity
from ragcache.errors import RequestError


def test_each_place_can_say_the_tenant() -> None:
    context = SimpleNamespace(tenant_id="acme", user_id="ann")
    assert resolve(Identity(tenant="acme")).tenant == "acme"
    assert resolve(Identity(), context=context) == Identity(tenant="acme", principal="ann")
    assert resolve(Identity(), context={"tenant_id": "acme"}).tenant == "acme"
    assert resolve(Identity(), metadata={"tenant_id": "acme"}).tenant == "acme"
    assert resolve(Identity(), tags=("x", "tenant:acme")).tenant == "acme"
    assert resolve(Identity()).tenant is None


def test_configurable_and_the_runtime_inside_it_count() -> None:
    runtime = SimpleNamespace(context={"tenant_id": "acme"})
    for configurable in ({"tenant_id": "acme"}, {"__pregel_runtime": runtime}):
        token = var_child_runnable_config.set({"configurable": configurable})
        try:
            assert resolve(Identity()).tenant == "acme"
        finally:
            var_child_runnable_config.reset(token)


@pytest.mark.parametrize(
    ("bound", "metadata", "tags"),
    [("acme", {"tenant_id": "beta"}, ()), (None, {"tenant_id": "acme"}, ("tenant:beta",))],
)
def test_two_tenants_are_an_error_that_names_both(bound, metadata, tags) -> None:
    with pytest.raises(RequestError, match=r"acme.*beta"):
        resolve(Identity(tenant=bound), metadata=metadata, tags=tags)


def test_configurable_reaches_metadata_and_metadata_wins() -> None:
    config = {"configurable": {"tenant_id": "acme", "thread_id": "1"}}
    assert with_identity(config)["metadata"] == {"tenant_id": "acme"}
    told = {**config, "metadata": {"tenant_id": "beta"}}
    assert with_identity(told)["metadata"] == {"tenant_id": "beta"}
    assert with_identity(None) is None
    assert with_identity({"tags": []}) == {"tags": []}
