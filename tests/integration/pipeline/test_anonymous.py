"""Requests that nobody owns: one order, and no trace of them."""

from __future__ import annotations

import secrets

from ragcache.types import Document, Request

DOCUMENTS = tuple(
    Document(text=f"Berth {letter} lifts {10 + at} tons and costs {20 + at} per hour.")
    for at, letter in enumerate("ABCDE")
)


async def test_their_documents_are_sent_in_one_order_and_leave_no_tree(make, upstream) -> None:
    cache = await make()
    for shift in range(4):
        await cache.answer(
            Request(
                tenant=f"anonymous-{secrets.token_hex(8)}",
                anonymous=True,
                question="What does it cost?",
                documents=DOCUMENTS[shift:] + DOCUMENTS[:shift],
                no_cache=True,
                no_store=True,
            )
        )
    contents = {b["messages"][-1]["content"].split("What does")[0] for b in upstream.bodies}
    blocks = {content[: content.rindex("per hour.")] for content in contents}
    assert len(upstream.bodies) == 4
    assert len(blocks) == 1
    assert len(cache.forest) == 0
