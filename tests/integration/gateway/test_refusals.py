"""Requests that are wrong, too much, too slow or given up: what is told, and nothing stored."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.doubles.upstream import Reply

ASKED = {"model": "fake", "messages": [{"role": "user", "content": "What is the fee?"}]}


def error_of(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body) == {"error"}
    assert {"message", "type", "param", "code"} <= set(body["error"])
    return body["error"]


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({}, "missing_api_key"),
        ({"Authorization": "Bearer nobody's"}, "invalid_api_key"),
        ({"Authorization": "Bearer a.b.c"}, "invalid_api_key"),
        ({"Authorization": "Basic YTpi"}, "invalid_api_key"),
        ({"Authorization": "Bearer"}, "invalid_api_key"),
        ({"Authorization": "Bearer \u00e4".encode("latin-1")}, "invalid_api_key"),
        ({"X-Tenant": "acme", "X-Api-Key": "k"}, "missing_api_key"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/models"])
def test_without_a_known_key_nothing_is_answered(gateway, upstream, header, code, path):
    method = "GET" if path.endswith("models") else "POST"
    response = httpx.request(method, f"{gateway.url}{path}", headers=header, json=ASKED)
    assert response.status_code == 401
    assert error_of(response)["code"] == code
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert not upstream.bodies


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b"\xff\xfe", None),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', None),
        (b'{"messages": [{"role": "user", "content": "x"}], "seed": NaN}', None),
        (b'{"messages": [{"role": "user", "content": "x"}], "seed": 1e999}', None),
        (b'{"messages": ' + b"[" * 3000 + b"]" * 3000 + b"}", None),
        (b'{"messages": [], "a": ' + b"[" * 80 + b"]" * 80 + b"}", None),
        (b'{"model": "fake"}', "messages"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": "x"}', "messages"),
        (b'{"messages": [{"content": "x"}]}', "messages.0.role"),
        (b'{"messages": [{"role": "user", "content": 3}]}', "messages.0.content.str"),
        (b'{"messages": [{"role": "user", "content": "x"}], "stream": "yes"}', "stream"),
        (b'{"messages": [{"role": "user", "content": "x"}], "tools": {}}', "tools"),
        (b'{"messages": [{"role": "user", "content": "x"}], "base_url": "http://e"}', "base_url"),
        (b'{"messages": [{"role": "user", "content": "x"}], "extra_headers": {}}', "extra_headers"),
        (
            b'{"messages": [{"role": "user", "content": "x"}], "ragcache": {"tenant": "globex"}}',
            "ragcache.tenant",
        ),
        (
            b'{"messages": [{"role": "user", "content": "x"}], "ragcache": {"ttl_s": -1}}',
            "ragcache.ttl_s",
        ),
    ],
)
def test_a_malformed_body_is_400_and_says_where(gateway, upstream, content, param):
    response = gateway.post(content=content)
    assert response.status_code == 400, response.text
    assert error_of(response)["param"] == param
    assert not upstream.bodies


def test_documents_without_a_place_are_400(gateway, upstream):
    for messages in (
        [{"role": "user", "content": "Fee?"}, {"role": "assistant", "content": "Yes"}],
        [{"role": "user", "content": [{"type": "text", "text": "Fee?"}]}],
        [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}] * 2,
    ):
        body = {"messages": messages, "ragcache": {"documents": ["The fee is 80."]}}
        response = gateway.post(json=body)
        assert response.status_code == 400
        assert error_of(response)["param"] == "ragcache.documents"
    assert not upstream.bodies


def test_unknown_addresses_and_methods_are_told_in_the_same_shape(gateway):
    assert error_of(httpx.get(f"{gateway.url}/v1/embeddings"))["code"] == "not_found"
    wrong = httpx.get(f"{gateway.url}/v1/chat/completions")
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


def test_a_body_over_the_limit_is_413_whether_its_length_is_told_or_not(serve, upstream):
    gateway = serve(max_body_bytes=1000)
    large = json.dumps({**ASKED, "user": "x" * 2000}).encode()

    def pieces():
        yield large[:500]
        yield large[500:]

    for content in (large, pieces()):
        response = gateway.post(content=content)
        assert response.status_code == 413
        assert error_of(response)["code"] == "body_too_large"
    assert gateway.post(json=ASKED).status_code == 200  # under the limit
    assert len(upstream.bodies) == 1


def test_a_packed_body_is_415(gateway):
    response = gateway.post(content=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert (response.status_code, error_of(response)["code"]) == (415, "unsupported_encoding")


def raw_request(gateway, body: bytes, *, length: int | None = None) -> socket.socket:
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: Bearer {gateway.keys['acme']}\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def test_a_body_that_does_not_come_is_408(serve, upstream):
    gateway = serve(body_timeout_s=0.2)
    with raw_request(gateway, b'{"model"', length=500) as connection:
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"code":"body_timeout"' in answer
    assert not upstream.bodies


def test_an_answer_that_does_not_come_is_504_and_not_stored(serve, upstream):
    gateway = serve(answer_timeout_s=0.3)
    upstream.answer(Reply(delay_s=3.0), Reply())
    response = gateway.post(json=ASKED)
    assert (response.status_code, error_of(response)["code"]) == (504, "timeout")
    again = gateway.post(json=ASKED)
    assert again.headers["cache-status"].startswith("ragcache; fwd=miss")
    assert len(upstream.bodies) == 2


def test_a_stream_that_does_not_end_is_ended_with_an_error_and_not_stored(serve, upstream):
    gateway = serve(answer_timeout_s=0.5)
    upstream.answer(Reply(pieces=["The fee"] * 100, piece_delay_s=0.05), Reply())
    response = gateway.post(json={**ASKED, "stream": True})
    assert response.status_code == 200
    last = response.text.strip().splitlines()[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
    assert "[DONE]" not in response.text
    again = gateway.post(json={**ASKED, "stream": True})
    assert again.headers["cache-status"].startswith("ragcache; fwd=miss")


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_given_up_ends_the_call_and_stores_nothing(gateway, upstream, stream):
    hold = threading.Event()
    slow = Reply(pieces=["The fee"] * 200, piece_delay_s=0.02) if stream else Reply(hold=hold)
    upstream.answer(slow, Reply())
    body = json.dumps({**ASKED, "stream": stream}).encode()
    connection = raw_request(gateway, body)
    if stream:
        assert b"200 OK" in connection.recv(4096)
    until = time.monotonic() + 10
    while not upstream.bodies and time.monotonic() < until:
        time.sleep(0.01)
    connection.close()
    if stream:
        while not upstream.closed and time.monotonic() < until:
            time.sleep(0.01)
        assert upstream.closed == 1  # long before its four seconds are over
    hold.set()
    again = gateway.post(json=ASKED)
    assert again.headers["cache-status"].startswith("ragcache; fwd=miss")
    assert len(upstream.bodies) == 2


def test_a_full_server_is_503_and_a_tenant_with_its_share_429(serve, upstream):
    gateway = serve(concurrency=3, tenant_concurrency=2)
    hold = threading.Event()
    upstream.answer(Reply(hold=hold))
    with ThreadPoolExecutor() as threads:
        held = [threads.submit(gateway.ask, f"Question {n}?") for n in range(2)]
        while len(upstream.bodies) < 2:
            time.sleep(0.01)
        mine = gateway.ask("One more?")
        held.append(threads.submit(gateway.ask, "Another's?", who="globex"))
        while len(upstream.bodies) < 3:
            time.sleep(0.01)
        others = gateway.ask("And one more?", who="globex")
        hold.set()
        assert [h.result().status_code for h in held] == [200] * 3
    assert (mine.status_code, error_of(mine)["code"]) == (429, "rate_limit_exceeded")
    assert (others.status_code, error_of(others)["code"]) == (503, "overloaded")
    assert mine.headers["retry-after"] == others.headers["retry-after"] == "1"
    assert gateway.ask("Is there room again?").status_code == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503])
def test_an_upstream_error_keeps_its_status_and_shape(gateway, upstream, status, stream):
    error = {"message": "scripted sk-of-the-upstream", "type": "odd", "param": "p", "code": "c"}
    upstream.answer(Reply(status=status, error=error, headers={"retry-after": "7"}), Reply())
    response = gateway.post(json={**ASKED, "stream": stream})
    assert response.status_code == status
    told = error_of(response)
    assert {name: told[name] for name in ("type", "param", "code")} == {
        "type": "odd",
        "param": "p",
        "code": "c",
    }
    assert ("sk-of-the-upstream" in told["message"]) == (status != 401)
    assert response.headers["retry-after"] == "7"
    assert gateway.post(json=ASKED).headers["cache-status"].startswith("ragcache; fwd=miss")


def test_an_upstream_that_breaks_off_ends_the_stream_with_an_error(gateway, upstream):
    upstream.answer(Reply(pieces=["The", " fee", " is"], break_after=2), Reply())
    response = gateway.post(json={**ASKED, "stream": True})
    events = [line for line in response.text.splitlines() if line]
    assert '"content":"The"' in response.text
    assert json.loads(events[-1].removeprefix("data: "))["error"]["type"] == "upstream_error"
    assert gateway.post(json=ASKED).headers["cache-status"].startswith("ragcache; fwd=miss")


def test_an_upstream_that_is_away_is_502_and_its_address_is_not_told(serve):
    api = {"base_url": "http://127.0.0.1:9/v1", "attempts": 1}
    response = serve(sections={"api": api}).post(json=ASKED)
    assert (response.status_code, error_of(response)["code"]) == (502, "connection")
    assert "127.0.0.1" not in response.text
