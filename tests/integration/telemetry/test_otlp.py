"""What reaches a collector over OTLP, and what LangSmith and Langfuse make of it.

The collector is a stand-in that takes the real exporter's protobuf. LangSmith's reading is its own
package's; Langfuse's is its ingestion's rule for the conventions' names (langfuse/langfuse
#14902, July 2026): cached tokens are taken out of the inclusive input.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import uvicorn
from langsmith.integrations.pipecat._helpers import extract_llm_usage
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from ragcache.events import Hooks
from ragcache.telemetry.otel import OpenTelemetryHook
from ragcache.types import Document, Request
from tests.doubles.upstream import Reply

DOCUMENTS = (Document(text="The fee is 80.", source="tariff.pdf"),)
USAGE = {
    "prompt_tokens": 6000,
    "completion_tokens": 250,
    "total_tokens": 6250,
    "prompt_tokens_details": {"cached_tokens": 4096},
}


class Collector:
    """Takes spans over OTLP/HTTP and keeps their attributes by span name."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    async def traces(self, request: HttpRequest) -> Response:
        sent = ExportTraceServiceRequest.FromString(await request.body())
        self.spans += [
            (span.name, {a.key: _plain(a.value) for a in span.attributes})
            for resource in sent.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        answer = ExportTraceServiceResponse().SerializeToString()
        return Response(answer, media_type="application/x-protobuf")


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(v) for v in value.array_value.values]
    return getattr(value, kind)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    app = Starlette(routes=[Route("/v1/traces", made.traces, methods=["POST"])])
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    made.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield made
    server.should_exit = True
    thread.join(timeout=10)
    listener.close()


def langfuse_usage(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Sort the conventions' names into buckets that do not overlap, as Langfuse prices them."""
    prefix = "gen_ai.usage."
    told = {k.removeprefix(prefix): v for k, v in attributes.items() if k.startswith(prefix)}
    cached = told.pop("cache_read.input_tokens", 0)
    written = told.pop("cache_creation.input_tokens", 0)
    return {
        "input": told.pop("input_tokens", 0) - cached - written,
        "input_cached_tokens": cached,
        "input_cache_creation": written,
        "output": told.pop("output_tokens", 0),
        **told,
    }


@pytest.fixture
async def received(collector, make, table, upstream, tenant) -> list[tuple[str, dict[str, Any]]]:
    """A miss, an exact hit and a semantic hit, as the collector got them."""
    upstream.answer(Reply(usage=USAGE))
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=collector.url)))
    pipeline = await make(hooks=Hooks(OpenTelemetryHook(tracer_provider=provider)))
    table.place("What is the fee?", 1.0)
    table.place("What's the fee?", 0.99)
    for question in ("What is the fee?", "What is the fee?", "What's the fee?"):
        await pipeline.answer(Request(tenant=tenant, question=question, documents=DOCUMENTS))
    await pipeline.close()
    assert provider.force_flush(10_000)
    provider.shutdown()
    return collector.spans


async def test_langsmith_and_langfuse_see_the_cached_tokens_of_a_call(received):
    (call,) = [attributes for name, attributes in received if name.startswith("chat ")]
    assert extract_llm_usage(call) == {
        "input_tokens": 6000,
        "output_tokens": 250,
        "input_token_details": {"cache_read": 4096},
    }
    assert langfuse_usage(call) == {
        "input": 1904,
        "input_cached_tokens": 4096,
        "input_cache_creation": 0,
        "output": 250,
    }
    assert call["gen_ai.request.model"] == "fake"
    assert call["gen_ai.operation.name"] == "chat"


async def test_an_answer_hit_is_never_reported_as_read_from_the_providers_cache(received):
    answers = [attributes for name, attributes in received if name == "ragcache.answer"]
    statuses = [attributes["ragcache.status"] for attributes in answers]
    assert statuses == ["miss", "hit_exact", "hit_semantic"]
    for attributes in answers:
        assert not [name for name in attributes if name.startswith("gen_ai.")]
        assert extract_llm_usage(attributes) == {}
    assert len(received) == 4  # three answers and the one call: hits make no inference span


async def test_no_content_and_no_tenant_leave_the_process(received, tenant):
    told = str(received)
    for word in ("the fee", "The fee is 80.", "tariff.pdf", str(tenant)):
        assert word not in told
