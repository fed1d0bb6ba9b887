"""The small face: the same keys, gates, lineage, isolation and admission as the pipeline."""

from __future__ import annotations

import pytest

from ragcache.errors import MissingTenantError
from ragcache.types import Document

D1 = Document(text="The fee is 80.", source="tariff.pdf", id="d1")
D2 = Document(text="Free time is 4 days.", source="terms.pdf", id="d2")
Q = "What is the demurrage fee?"


async def test_what_is_put_is_got_with_its_age_and_lifetime(make, tenant, clock):
    cache = await make()
    answers = cache.answers(tenant=tenant, model="m", prompt_version="1")
    missed = await answers.get(Q, documents=[D1])
    assert not missed
    assert missed.reason == "no_candidate"
    put = await answers.put(Q, "The fee is 80.", documents=[D1], since=missed, ttl_s=60)
    assert put.stored is True
    clock.advance(20)
    hit = await answers.get(Q, documents=[D1])
    assert hit
    assert (hit.answer, hit.kind, hit.age_s, hit.ttl_s) == ("The fee is 80.", "exact", 20, 40)


async def test_model_prompt_version_and_tenant_are_partitions(make, tenant):
    cache = await make()
    fields = {"tenant": tenant, "model": "m", "prompt_version": "1"}
    await cache.answers(**fields).put(Q, "The fee is 80.", documents=[D1])
    assert await cache.answers(**fields).get(Q, documents=[D1])
    for other in ({"model": "n"}, {"prompt_version": "2"}, {"tenant": f"{tenant}-b"}):
        assert not await cache.answers(**(fields | other)).get(Q, documents=[D1])


async def test_an_answer_goes_through_admission(make, tenant):
    cache = await make()
    answers = cache.answers(tenant=tenant, model="m")
    for answer, fields, reason in (
        ("The fee is 99.", {}, "grounding"),
        ("The fee is 80.", {"finish_reason": "length"}, "finish_reason"),
        ("", {}, "empty"),
    ):
        put = await answers.put(Q, answer, documents=[D1], **fields)
        assert (put.stored, put.reason) == (False, reason)
    assert not await answers.get(Q, documents=[D1])


async def test_an_answer_begun_before_a_change_is_not_stored(make, tenant):
    cache = await make()
    answers = cache.answers(tenant=tenant, model="m")
    missed = await answers.get(Q, documents=[D1])
    await cache.documents.changed(tenant, ["d1"])
    put = await answers.put(Q, "The fee is 80.", documents=[D1], since=missed)
    assert (put.stored, put.reason) == (False, "document_changed")


async def test_a_change_kills_the_answers_from_that_document_alone(make, tenant):
    cache = await make()
    answers = cache.answers(tenant=tenant, model="m")
    other = "How many days are free?"
    await answers.put(Q, "The fee is 80.", documents=[D1])
    await answers.put(other, "Free time is 4 days.", documents=[D2])
    assert await cache.documents.changed(tenant, ["tariff.pdf"]) == 1
    assert not await answers.get(Q, documents=[D1])
    assert await answers.get(other, documents=[D2])
    assert await cache.documents.removed(tenant, ["unknown"]) == 0
    assert await cache.epoch.bump(tenant) >= 1
    assert not await answers.get(other, documents=[D2])


async def test_an_empty_tenant_is_refused(make):
    cache = await make()
    with pytest.raises(MissingTenantError):
        await cache.answers(tenant=" ").get(Q)
    with pytest.raises(MissingTenantError):
        await cache.documents.changed("", ["d1"])
