"""What a request may ask of the cache, what it is told, and whose answers it is served."""

from __future__ import annotations

import re
import time

import httpx
import pytest

from tests.doubles.upstream import Reply

FEES = [
    {"text": "The fee is 80 a day.", "source": "fees.md"},
    {"text": "Storage is free for 3 days.", "source": "storage.md"},
]


def status_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.headers["cache-status"]


def test_cache_status_is_the_structured_field_of_rfc_9211_without_similarities(gateway):
    miss, hit = status_of(gateway.ask("Fee?")), gateway.ask("Fee?")
    assert miss == "ragcache; fwd=miss; stored; detail=no_candidate" or re.fullmatch(
        r"ragcache; fwd=miss; ttl=\d+; stored; detail=no_candidate", miss
    )
    assert re.fullmatch(r"ragcache; hit; ttl=\d+; detail=exact", status_of(hit))
    assert int(hit.headers["age"]) >= 0
    assert "similarity" not in str(hit.headers) + hit.text


def test_another_tenant_is_not_served_and_cannot_be_named(gateway, upstream):
    gateway.ask("Fee?")
    named = {"X-Tenant": gateway.tenants["acme"], "OpenAI-Organization": gateway.tenants["acme"]}
    stranger = gateway.ask("Fee?", who="globex", headers=named, user=gateway.tenants["acme"])
    assert status_of(stranger).startswith("ragcache; fwd=miss")
    assert len(upstream.bodies) == 2
    assert status_of(gateway.ask("Fee?")).startswith("ragcache; hit")  # the control


def test_no_store_is_not_stored(gateway):
    for _ in range(2):
        told = status_of(gateway.ask("Fee?", headers={"Cache-Control": "no-store"}))
        assert told == "ragcache; fwd=miss; detail=no_candidate"


def test_no_cache_asks_anew_and_stores(gateway, upstream):
    upstream.answer(Reply(text="The fee is 80."), Reply(text="The fee is 90."))
    gateway.ask("Fee?")
    anew = gateway.ask("Fee?", headers={"Cache-Control": "max-age=60, no-cache"})
    assert status_of(anew).startswith("ragcache; fwd=request")
    assert gateway.ask("Fee?").json()["choices"][0]["message"]["content"] == "The fee is 90."


def test_only_if_cached_never_asks_upstream(gateway, upstream):
    wanted = {"Cache-Control": "only-if-cached"}
    missed = gateway.ask("Fee?", headers=wanted)
    assert (missed.status_code, missed.json()["error"]["code"]) == (504, "not_cached")
    assert missed.headers["cache-status"].startswith("ragcache; fwd=miss")
    streamed = gateway.ask("Fee?", headers=wanted, stream=True)
    assert (streamed.status_code, streamed.json()["error"]["code"]) == (504, "not_cached")
    assert not upstream.bodies
    gateway.ask("Fee?")
    assert status_of(gateway.ask("Fee?", headers=wanted)).startswith("ragcache; hit")


def test_max_age_bounds_the_age_of_what_is_served(gateway, upstream):
    gateway.ask("Fee?")
    time.sleep(1.1)
    assert status_of(gateway.ask("Fee?", headers={"Cache-Control": "max-age=60"})).startswith(
        "ragcache; hit"
    )
    old = gateway.ask("Fee?", headers={"Cache-Control": "max-age=1"})
    assert "hit" not in status_of(old)
    assert len(upstream.bodies) == 2


def test_an_unknown_member_of_the_body_is_another_request_and_is_passed_on(gateway, upstream):
    upstream.allowed |= {"future_option"}
    gateway.ask("Fee?")
    for _ in range(2):
        gateway.ask("Fee?", future_option={"a": 1})
    assert [body.get("future_option") for body in upstream.bodies] == [None, {"a": 1}]


def test_documents_of_the_body_stand_in_front_of_the_question_and_are_cited(gateway, upstream):
    def prompt(body):
        return body["messages"][-1]["content"]

    def citing(body):
        ahead = prompt(body).partition("The fee is")[0]
        return Reply(text=f"80 [{re.findall(r'[0-9]+', ahead)[-1]}]")

    upstream.script = citing
    system = {"role": "system", "content": "Answer from the documents."}
    messages = [system, {"role": "user", "content": "What is the fee?"}]
    body = {"model": "fake", "messages": messages, "ragcache": {"documents": FEES}}
    response = gateway.post(json=body)
    sent = upstream.bodies[0]
    assert "ragcache" not in sent
    assert sent["messages"][0] == system
    text = prompt(sent)
    assert text.index("The fee is 80 a day.") < text.index("What is the fee?")
    told = response.json()["ragcache"]
    assert [c["sources"] for c in told["citations"].values()] == [["fees.md"]]
    assert [c["documents"] for c in told["citations"].values()] == [[0]]
    dotted = {**body, "ragcache.documents": FEES}
    del dotted["ragcache"]
    assert status_of(gateway.post(json=dotted)).startswith("ragcache; hit")
    changed = [{**FEES[0], "text": "The fee is 90 a day."}, FEES[1]]
    other = {**body, "ragcache": {"documents": changed}}
    assert status_of(gateway.post(json=other)).startswith("ragcache; fwd")


def test_documents_that_stand_in_the_prompt_are_found_there(gateway, upstream):
    context = "\n\n".join(d["text"] for d in FEES)
    content = f"Context:\n{context}\n\nQuestion: What is the fee?"
    body = {
        "messages": [{"role": "user", "content": content}],
        "ragcache": {"documents": FEES[::-1]},
    }
    gateway.post(json=body)
    sent = upstream.bodies[0]["messages"][0]["content"]
    assert sorted(sent) == sorted(content)
    assert sent.startswith("Context:\n")
    assert sent.endswith("\n\nQuestion: What is the fee?")


@pytest.mark.parametrize("stream", [False, True])
def test_documents_between_tags_are_recognised_and_only_reordered(gateway, upstream, stream):
    def asked(*order: int) -> dict:
        tags = [
            f'<document source="{FEES[n]["source"]}">{FEES[n]["text"]}</document>' for n in order
        ]
        content = "Use these:\n" + "\n".join(tags) + "\nWhat is the fee?"
        return {"messages": [{"role": "user", "content": content}], "stream": stream}

    first = gateway.post(json=asked(0, 1))
    second = gateway.post(json=asked(1, 0))
    assert status_of(first).startswith("ragcache; fwd=miss")
    assert status_of(second).startswith("ragcache; hit")
    sent = upstream.bodies[0]["messages"][0]["content"]
    assert sorted(sent) == sorted(asked(0, 1)["messages"][0]["content"])


def test_health_readiness_metrics_and_the_document_are_served(gateway):
    gateway.ask("Fee?")
    assert httpx.get(f"{gateway.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{gateway.url}/readyz").json() == {"status": "ready", "store": "ok"}
    assert "ragcache_requests_total" in httpx.get(f"{gateway.url}/metrics").text
    assert httpx.get(f"{gateway.url}/openapi.json").json()["openapi"] == "3.1.0"


def test_metrics_are_shown_to_this_machine_or_to_their_key(gateway, serve):
    forwarded = httpx.get(f"{gateway.url}/metrics", headers={"X-Forwarded-For": "10.0.0.1"})
    assert forwarded.status_code == 403
    locked = serve(metrics_key="of-the-operator")
    assert httpx.get(f"{locked.url}/metrics").status_code == 401
    tenant = {"Authorization": f"Bearer {locked.keys['acme']}"}
    assert httpx.get(f"{locked.url}/metrics", headers=tenant).status_code == 401
    operator = {"Authorization": "Bearer of-the-operator"}
    assert httpx.get(f"{locked.url}/metrics", headers=operator).status_code == 200


def test_without_a_store_requests_are_answered(serve, upstream):
    gateway = serve(sections={"store": {"kind": "none"}})
    assert status_of(gateway.ask("Fee?")) == "ragcache; fwd=request; detail=no_store"
    assert httpx.get(f"{gateway.url}/readyz").json() == {"status": "ready", "store": "none"}
