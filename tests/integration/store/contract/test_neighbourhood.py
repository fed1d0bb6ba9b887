"""What lies around a question, for admission: everybody's, waiting or not, but nothing dead."""

from __future__ import annotations

import pytest

from ragcache.types import Document, TenantId
from tests.store_samples import NOW, entry, keys, request, scope, stored, unit


def asked_by(tenant: str, principal: str, question: str = "What is it?", **fields):
    return request(tenant, principal=principal, sharing="tenant", question=question, **fields)


async def around(store, asked, vector=None, *, own=4, others=4, now=NOW):
    return await store.neighbourhood(
        scope(asked), keys(asked), vector, embedder="E", now=now, own=own, others=others
    )


async def test_entries_of_others_under_the_same_words_are_found_waiting_or_not(store, tenant):
    ann, bob, cid = (asked_by(tenant, who) for who in ("ann", "bob", "cid"))
    waiting = await stored(store, ann, state="quarantined")
    live = await stored(store, bob)
    found = await around(store, cid)
    assert {c.entry.id for c in found.others} == {waiting.id, live.id}
    assert {c.entry.state for c in found.others} == {"quarantined", "live"}
    assert {c.similarity for c in found.others} == {1.0}
    assert not (await store.find_exact(scope(cid), keys(cid), now=NOW))[1:], "only the live one"


async def test_the_other_spelling_of_the_question_is_found_too(store, tenant):
    made = await stored(store, asked_by(tenant, "ann"), state="quarantined")
    found = await around(store, asked_by(tenant, "bob", "what is it"))
    assert [c.entry.id for c in found.others] == [made.id]


async def test_what_is_held_expired_changed_or_elsewhere_is_not_there(store, tenant):
    document = Document(text="d", source="s")
    held = await stored(store, asked_by(tenant, "ann"), state="quarantined")
    await store.quarantine(held.scope, held.id, reason="bad_hit")
    await stored(store, asked_by(tenant, "dan"), ttl_s=-1)
    await stored(store, asked_by(tenant, "eve", version="2"))
    await stored(store, asked_by(TenantId(f"{tenant}-b"), "fay"))
    await stored(store, asked_by(tenant, "gus", documents=(document,)))
    await store.change(tenant, ["s"])
    assert not (await around(store, asked_by(tenant, "bob"))).others


async def test_of_documents_that_the_writer_may_not_read_nothing_is_told(store, tenant):
    secret = (Document(text="secret", source="s", access=frozenset({"hr"})),)
    await stored(store, asked_by(tenant, "ann", documents=secret), state="quarantined")
    assert not (await around(store, asked_by(tenant, "bob"))).others


async def test_the_nearest_of_both_sorts_are_found_among_the_similar(store, tenant):
    for at in range(6):
        mine = asked_by(tenant, "mallory", f"mine {at}")
        await stored(store, mine, vector=unit(1.0, 0.05 * at), state="quarantined")
        theirs = asked_by(tenant, "ann", f"theirs {at}")
        await stored(store, theirs, vector=unit(1.0, -0.05 * at), state="quarantined")
    asked = asked_by(tenant, "mallory", "again")
    found = await around(store, asked, unit(1.0), own=3, others=2)
    assert found.own == pytest.approx((1.0, 0.9988, 0.9950), abs=0.002)
    assert [c.entry.question for c in found.others] == ["theirs 0", "theirs 1"]
    assert found.others[1].similarity == pytest.approx(0.9988, abs=0.002)


async def test_what_a_new_similar_answer_takes_the_place_of_does_not_count(store, tenant):
    mine = asked_by(tenant, "ann")
    await stored(store, mine, vector=unit(1.0))
    assert (await around(store, mine, unit(1.0))).own == ()
    found = await around(store, asked_by(tenant, "ann", "Another?"), unit(1.0))
    assert found.own == pytest.approx((1.0,), abs=0.002)


async def test_what_is_similar_and_held_expired_or_of_another_embedder_is_not_there(store, tenant):
    held = await stored(store, asked_by(tenant, "ann", "one"))
    await store.quarantine(held.scope, held.id, reason="bad_hit")
    await stored(store, asked_by(tenant, "ann", "two"), ttl_s=-1)
    await stored(store, asked_by(tenant, "ann", "three"), embedder="F")
    kept = await stored(store, asked_by(tenant, "ann", "four"))
    found = await around(store, asked_by(tenant, "bob", "five"), unit(1.0, 0.5))
    assert [c.entry.id for c in found.others] == [kept.id]


async def test_a_store_without_anything_has_no_neighbourhood(store, tenant):
    asked = asked_by(tenant, "ann")
    found = await around(store, asked, entry(asked).vector)
    assert (found.own, found.others) == ((), ())
