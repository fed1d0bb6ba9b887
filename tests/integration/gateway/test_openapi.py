"""Random requests by the gateway's own OpenAPI document: none of them is an error of the server."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

KEPT = frozenset({200, 400, 404})


def cases(gateway):
    schema = schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")
    return [operation.ok() for operation in schema.get_all_operations()]


def run(gateway, operation, count: int, *, derandomize: bool) -> set[int]:
    seen: set[int] = set()
    headers = {"Authorization": f"Bearer {gateway.keys['acme']}"}

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=derandomize,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case):
        response = case.call(headers=headers)
        seen.add(response.status_code)
        # 504 is what RFC 9111 wants where only a stored answer would do, and there is none.
        kept = response.status_code == 504 and response.json()["error"]["code"] == "not_cached"
        assert response.status_code < 500 or kept, (case.as_curl_command(), response.text)
        case.validate_response(
            response, checks=[status_code_conformance, response_schema_conformance]
        )

    ask()
    return seen


def asked(gateway, upstream, count: int, *, derandomize: bool) -> None:
    upstream.fault = lambda body: ""  # a host that takes what the document allows
    kinds = {}
    for operation in cases(gateway):
        kinds[operation.path] = run(gateway, operation, count, derandomize=derandomize)
    assert 200 in kinds["/v1/models"], kinds
    assert kinds["/v1/chat/completions"] & KEPT, kinds
    assert upstream.bodies, "no request came as far as the model"


def test_no_request_that_the_document_allows_is_an_error_of_the_server(gateway, upstream):
    asked(gateway, upstream, 15, derandomize=True)


@pytest.mark.prove
def test_no_request_of_many_is_an_error_of_the_server(gateway, upstream):
    asked(gateway, upstream, 500, derandomize=False)
