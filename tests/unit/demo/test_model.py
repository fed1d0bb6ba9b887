"""Which model the demonstration asks, and what is said of a server that cannot be used."""

from __future__ import annotations

import pytest
from pytest_httpserver import HTTPServer

from ragcache.demo.model import named_model, own_model
from ragcache.errors import ConfigError

LISTED = {"data": [{"id": "small"}, {"id": "large"}]}


def environment(server: HTTPServer, **more: str) -> dict[str, str]:
    return {"RAGCACHE_BASE_URL": server.url_for("/v1"), **more}


def test_without_an_address_no_server_is_named() -> None:
    assert named_model({}) is None


def test_the_first_listed_model_is_asked_with_the_key(httpserver: HTTPServer) -> None:
    httpserver.expect_request(
        "/v1/models", headers={"Authorization": "Bearer very-secret"}
    ).respond_with_json(LISTED)
    model = named_model(environment(httpserver, RAGCACHE_API_KEY="very-secret"))
    assert model is not None
    assert (model.name, model.api_key, model.provider) == ("small", "very-secret", None)
    assert "very-secret" not in repr(model)


def test_another_model_can_be_named(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v1/models").respond_with_json(LISTED)
    model = named_model(environment(httpserver, RAGCACHE_MODEL__NAME="large"))
    assert model is not None
    assert model.name == "large"


def test_no_field_that_a_foreign_server_may_refuse_is_sent(httpserver: HTTPServer) -> None:
    httpserver.expect_request("/v1/models").respond_with_json(LISTED)
    foreign = named_model(environment(httpserver))
    assert foreign is not None
    assert not foreign.body
    assert own_model("http://127.0.0.1:1/v1", "smollm2").body  # control: ours takes one


@pytest.mark.parametrize(
    ("status", "body", "more", "said"),
    [
        (401, {}, {}, "RAGCACHE_API_KEY"),
        (404, {}, {}, "up to and including /v1"),
        (200, {"hello": 1}, {}, "does not answer like"),
        (200, {"data": []}, {}, "RAGCACHE_MODEL__NAME"),
        (200, LISTED, {"RAGCACHE_MODEL__NAME": "huge"}, "it has small, large"),
    ],
)
def test_a_server_that_cannot_be_used_is_explained(
    httpserver: HTTPServer, status: int, body: object, more: dict[str, str], said: str
) -> None:
    httpserver.expect_request("/v1/models").respond_with_json(body, status=status)
    with pytest.raises(ConfigError, match=said):
        named_model(environment(httpserver, **more))


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/v1", "localhost/v1", "http://["])
def test_an_address_that_reaches_nothing_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match="RAGCACHE_BASE_URL=") as refused:
        named_model({"RAGCACHE_BASE_URL": address})
    assert address in str(refused.value)
