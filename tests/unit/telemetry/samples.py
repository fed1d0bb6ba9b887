"""Events as a request makes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ragcache.events import Admitted, Answered, Called, Event, Judged, LaidOut, LookedUp
from ragcache.types import (
    ZERO_USAGE,
    Admit,
    Answer,
    Block,
    CacheStatus,
    Completion,
    Document,
    Hit,
    Layout,
    Message,
    Miss,
    Reuse,
    Scope,
    Usage,
)
from tests.store_samples import entry, request, scope

USAGE = Usage(input_tokens=6000, cached_tokens=4096, output_tokens=250)
SPARED = Usage(input_tokens=900, cached_tokens=0, output_tokens=200)
SECRET = "the secret question of a person"


def common(scope_: Scope, request_id: str = "r1", **fields: Any) -> dict[str, Any]:
    return {
        "request_id": request_id,
        "scope": scope_,
        "version": "v1",
        "provider": "openai",
        "seconds": 0.01,
    } | fields


def layout() -> Layout:
    document = Document(text="The fee is 80.", source="tariff.pdf")
    block = Block(
        label="1234", text="[1234] The fee is 80.", hash="ab" * 32, documents=(document,), rank=0
    )
    return Layout(
        messages=(
            Message(role="system", content="Answer from the documents."),
            Message(role="user", content=f"[1234] The fee is 80.\n{SECRET}"),
        ),
        blocks=(block,),
        predicted_tokens=5000,
        notes=("first difference from the previous request: tail, byte 3",),
    )


def of_miss(tenant: str = "acme", request_id: str = "r1") -> list[Event]:
    """Return the events of a request that reached the target."""
    place = common(scope(request(tenant)), request_id)
    completion = Completion(text="Said.", finish_reason="stop", usage=USAGE, model="m")
    answer = Answer(
        text="Said.",
        status=CacheStatus(fwd="miss", reason="no_candidate", stored=True),
        usage=USAGE,
        completion=completion,
        request_id=request_id,
        ttft_s=0.4,
    )
    return [
        LookedUp(outcome=Miss(reason="no_candidate", nearest=0.71), question=SECRET, **place),
        LaidOut(layout=layout(), **place),
        Called(
            model="m",
            target="https://api.example.test",
            usage=USAGE,
            reuse=Reuse(predicted_tokens=5000, served_tokens=4096, cause="evicted"),
            ttft_s=0.4,
            finish_reason="stop",
            **place,
        ),
        Admitted(verdict=Admit(state="live", ttl_s=60), stored=True, **place),
        Answered(answer=answer, **place),
    ]


def of_hit(tenant: str = "acme", request_id: str = "r2") -> list[Event]:
    """Return the events of a semantic hit."""
    asked = request(tenant)
    place = common(scope(asked), request_id)
    found = entry(asked, model="m")
    hit = Hit(entry=found, kind="semantic", similarity=0.97, certified=False)
    answer = Answer(
        text="It is this.",
        status=CacheStatus(hit="semantic", similarity=0.97, entry=found.id, certified=False),
        usage=ZERO_USAGE,
        completion=Completion(
            text="It is this.", finish_reason="stop", usage=ZERO_USAGE, model="m"
        ),
        request_id=request_id,
        ttft_s=0.003,
    )
    return [
        LookedUp(outcome=hit, question=SECRET, **place),
        Answered(answer=answer, saved_usage=SPARED, **place),
    ]


def of_follower(tenant: str = "acme", request_id: str = "r3") -> list[Event]:
    """Return the events of a request that another request's call has answered."""
    looked, *_, answered = of_miss(tenant, request_id)
    answer = answered.answer
    shared = replace(answer, usage=ZERO_USAGE, status=replace(answer.status, collapsed=True))
    return [looked, replace(answered, answer=shared)]


def judged(tenant: str = "acme", request_id: str = "r2", **fields: Any) -> Judged:
    """Return the verdict on a hit."""
    place = common(scope(request(tenant)), request_id)
    return Judged(**(place | {"entry": "e", "similarity": 0.97, "agreed": True} | fields))
