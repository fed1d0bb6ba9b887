"""Every reason on a status in plain words, and what to do about it. `docs/reasons.md` shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """What one word on a status means, and what to do; "" where nothing is to be done."""

    means: str
    remedy: str = ""


def _r(means: str, remedy: str = "") -> Reason:
    return Reason(means=means, remedy=remedy)


#: Why a request went forward.
FORWARD = {
    "no_candidate": _r("no stored question was near enough to look at"),
    "below_threshold": _r(
        "the nearest stored question is not as alike as the threshold asks",
        "`ragcache calibrate` finds the threshold for your embedder and your questions",
    ),
    "guard_off": _r(
        "semantic hits are off: the bad-hit rate could not be held under its bound",
        "look at the bad hits (`ragcache report`), then give a better embedder or judge",
    ),
    "conflict": _r(
        "two stored answers pass and do not say the same",
        "purge the wrong one: `ragcache inspect` shows both",
    ),
    "language": _r("the two questions are in different languages"),
    "number": _r("a number, unit, date, version or id differs"),
    "negation": _r("one question is negated and the other is not"),
    "antonym": _r("a word of one question is the opposite of a word of the other"),
    "entity": _r("a name differs"),
    "question_type": _r("one asks who, the other when, or the like"),
    "tense": _r("one asks about the past, the other about the present or future"),
    "slot": _r("the same words stand in other roles"),
    "order": _r("the same words stand in another order"),
    "comparison": _r("one compares (more, best), the other otherwise or not"),
    "words": _r(
        "a word of one question has no counterpart in the other",
        "an embedder that gives token vectors (sentence-transformers) explains more words",
    ),
    "verifier": _r(
        "a word or name has no counterpart, and the second opinion is not sure that it fits",
        "`ragcache calibrate --fit` makes one of your own pairs; verifier.threshold is its bar",
    ),
    "instruction": _r("the question gives the model an instruction"),
    "conversation": _r(
        "the question leans on the turns before it",
        "give `standalone=` the question condensed so that it needs no history",
    ),
    "policy_action": _r("it asks for an action, and the policy gate of the namespace is on"),
    "policy_time": _r("it asks about this moment, and the policy gate of the namespace is on"),
    "unreadable": _r("the entry was stored without what the gates need", "purge it, or wait"),
    "document_changed": _r("a document that the answer cites has another content now"),
    "evidence_missing": _r("a document that the answer cites was not retrieved this time"),
    "new_evidence": _r(
        "a document was retrieved that the answer has not seen, ranked before its own"
    ),
    "unsupported": _r(
        "a number, name or quotation of the answer is no longer in the documents retrieved"
    ),
    "access": _r("the asker lacks an access tag of a document that the answer came from"),
    "expired": _r("the entry is past its lifetime", "a longer `ttl_s`, where answers stay true"),
    "epoch": _r("a document or the whole namespace was invalidated since"),
    "deleted": _r("the entry was purged"),
    "quarantined": _r(
        "the entry is shared and nobody but its writer has confirmed it yet",
        "`ragcache promote`, or wait for a second principal's own answer",
    ),
    "version": _r("the entry belongs to another version of prompt or corpus"),
    "age": _r("the entry is older than the request's `max_age_s`"),
    "no_cache": _r("the request asked not to be served from the cache"),
    "canary": _r("its version is new and not warm yet: the target alone answers until it is"),
    "refresh": _r("the request asked for a fresh answer"),
    "blank_question": _r("the question holds no word"),
    "no_store": _r("there is no store, or the request asked not to store"),
    "no_embedder": _r(
        "no embedder is set, so that only equal questions hit", "set embedding.model"
    ),
    "bad_vector": _r(
        "the embedder gave NaN, zero or another length", "check the embedder's endpoint"
    ),
    "store_timeout": _r(
        "the store did not answer within its budget",
        "look at the database's load, or raise budgets.store_ms",
    ),
    "store_error": _r("the store failed", "`ragcache doctor` tells what is wrong with it"),
    "store_breaker_open": _r("the store has failed several times and is left alone for a moment"),
    "embed_timeout": _r(
        "the embedder did not answer within its budget",
        "use a smaller model or more threads, or raise budgets.embed_ms",
    ),
    "embed_error": _r("the embedder failed", "check embedding.model, its endpoint and key"),
    "embed_breaker_open": _r("the embedder has failed several times and is left alone a moment"),
    "unknown": _r("it was not recorded"),
}

#: Why an answer was not stored.
NOT_STORED = {
    "no_store": _r("there is no store, or the request asked not to store"),
    "error": _r("the text is an error message"),
    "finish_reason": _r("the answer did not end by itself", "raise max_tokens where it was cut"),
    "tool_calls": _r("the answer calls a tool"),
    "empty": _r("the answer has no text"),
    "refusal": _r("the model refused"),
    "no_documents": _r("no document was given, or the answer says that nothing was found"),
    "size": _r("question or answer is too long", "raise admission.max_answer_chars"),
    "blank_question": _r("the question holds no word"),
    "temperature": _r("it was sampled too hot to be worth repeating"),
    "poison_check": _r("question, answer or a cited document gives the model an instruction"),
    "canonical_question": _r(
        "it would be shared, and its question holds more than a question",
        "put what stands beside the question into the system text",
    ),
    "citation": _r("the answer cites a label that the prompt did not print"),
    "grounding": _r("the answer holds a number, id or link that no cited document has"),
    "personal": _r("it holds personal data and would be shared"),
    "write_rate": _r(
        "its principal, or the tenant, has written too much in too short a time",
        "raise admission.writes_per_s or writes_at_once",
    ),
    "crowded": _r(
        "its principal has stored many answers to questions nearly like it",
        "raise admission.neighbourhood",
    ),
    "hub": _r("its question is near too many questions that have nothing to do with each other"),
    "ttl": _r("it would have expired already"),
    "epoch": _r("the namespace was invalidated while the answer was made"),
    "document_changed": _r("a document changed while the answer was made"),
    "exists": _r("another request stored the same answer first"),
    "quota": _r("the namespace may keep no entry", "give it a quota"),
    "unstorable": _r("the text holds what Postgres cannot keep"),
    "store_pending": _r("the store was still busy when the answer went out"),
    "store_queue_full": _r("too many answers were waiting to be stored", "look at the database"),
    "store_error": _r("the store failed", "`ragcache doctor` tells what is wrong with it"),
}

#: Why fewer tokens were reused than predicted.
LOST_PREFIX = {
    "evicted": _r(
        "the engine had given the blocks to others",
        "more KV memory (gpu_memory_utilization, offload), or fewer concurrent prefixes",
    ),
    "expired": _r("the provider's lifetime was over", "a longer lifetime, or keep it warm"),
    "under minimum": _r("the shared prefix is shorter than the provider caches"),
    "below_floor": _r("the shared prefix is shorter than a block, or than the provider caches"),
    "not marked": _r("no breakpoint stood there", "turn planned breakpoints on"),
    "not_readable": _r("requests of this kind never read the cache"),
    "other replica": _r("another replica was asked", "route by prefix, or use prompt_cache_key"),
    "salt": _r("another trust group's blocks are not shared"),
    "floor_unknown": _r("the model's least prefix is not known"),
    "more than predicted": _r("the target reused more than the layout knew of"),
    "unexpected_miss": _r(
        "nothing explains it: something before the shared part changed",
        "`ragcache lint --log FILE` and `ragcache diff` show the first byte that differs",
    ),
    "unknown": _r("the target did not say"),
}


def explained(word: str, catalogue: dict[str, Reason]) -> str:
    """Return the word with its meaning, and the remedy where there is one."""
    known = catalogue.get(word)
    if known is None:
        return word
    return f"{word}: {known.means}" + (f" (to do: {known.remedy})" if known.remedy else "")
