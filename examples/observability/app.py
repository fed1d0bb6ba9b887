"""A chain under load whose metrics Prometheus can scrape at http://127.0.0.1:9464/metrics.

It answers from your server where RAGCACHE_API__BASE_URL and RAGCACHE_MODEL__NAME are set, else
from a stand-in that only pretends to think. Everything else is real: an embedded Postgres, the
embedding model, the cache.

    python examples/observability/app.py --seconds 600
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time

from prometheus_client import start_http_server

from ragcache import Document, RagCache, Request, Settings
from ragcache.types import Call, Completion, Usage

FEES = {"demurrage": 80, "storage": 35, "late arrival": 50, "weighing": 12, "pilotage": 240}
ASKED = (
    "What is the {} fee?",
    "How much is the {} fee?",
    "What does {} cost?",
    "Tell me the {} fee, please.",
)


class StandIn:
    """Pretends to be a model with a prefix cache of its own."""

    provider = "openai"
    name = "stand-in"
    model = "gpt-4o-mini"

    def __init__(self) -> None:
        self._seen = ""

    async def complete(self, call: Call) -> Completion:
        prompt = "\n".join(message.text() for message in call.messages)
        shared = len([1 for a, b in zip(prompt, self._seen, strict=False) if a == b])
        self._seen = prompt
        await asyncio.sleep(0.2)
        fee = next((f for name, f in FEES.items() if name in prompt.rpartition("\n")[2]), 0)
        usage = Usage(input_tokens=len(prompt) // 4, cached_tokens=shared // 4, output_tokens=12)
        text = f"The fee is {fee}."
        return Completion(text=text, finish_reason="stop", usage=usage, model=self.model)


async def main(seconds: float, port: int) -> None:
    start_http_server(port, addr="127.0.0.1")
    settings = Settings.load()
    target = None if settings.model.name else StandIn()
    documents = tuple(
        Document(text=f"Tariff. The {name} fee is {fee} per day. " * 8, source=f"{name}.md")
        for name, fee in FEES.items()
    )
    draw = random.Random(0)
    end_s = time.monotonic() + seconds
    async with RagCache.open(settings, target=target) as cache:
        print(f"metrics: http://127.0.0.1:{port}/metrics")
        while time.monotonic() < end_s:
            question = draw.choice(ASKED).format(draw.choice(list(FEES)))
            retrieved = tuple(draw.sample(documents, 4))
            await cache.answer(Request(tenant="acme", question=question, documents=retrieved))
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--port", type=int, default=9464)
    given = parser.parse_args()
    asyncio.run(main(given.seconds, given.port))
