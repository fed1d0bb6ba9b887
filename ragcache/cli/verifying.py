"""The checks that people do by hand, against the target, embedder and store of the settings."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import RagCacheError, TargetError
from ..factory import RagCache
from ..providers import find_rules
from ..telemetry.zeros import judged_reuse
from ..types import Call, Chunk, Completion, Document, Message, Request, TenantId, Usage

if TYPE_CHECKING:
    from ..protocols import Target
    from ..settings import Settings
    from ..types import Answer

#: Tokens of the long prefix: above what most hosts cache at least, within small windows.
PREFIX_TOKENS = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Questions in one language: one to store, one that means the same, one that does not."""

    language: str
    document: str
    stored: str
    same: str
    trap: str
    answer: str


PAIRS = (
    Pair(
        language="English",
        document="Demurrage is charged at 80 euros per day and 500 euros per week.",
        stored="What is the demurrage fee per day?",
        same="How much is the demurrage fee per day?",
        trap="What is the demurrage fee per week?",
        answer="The demurrage fee is 80 euros per day.",
    ),
    Pair(
        language="Chinese",
        document="滞期费每天80欧元，每周500欧元。",
        stored="滞期费每天是多少？",
        same="请问滞期费每天是多少？",
        trap="滞期费每周是多少？",
        answer="滞期费每天80欧元。",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall:
    """One of the two calls of the prefix pair. None where the target did not say."""

    ttft_s: float | None = None
    input: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCheck:
    """The same long prefix with two questions.

    `verdict` is a word of `telemetry.zeros`, or "failed"; `advice` says what to look at.
    """

    language: str
    first: TimedCall
    second: TimedCall
    verdict: str
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupCheck:
    """A question asked of the cache after another one was stored.

    Args:
        language: Of the questions.
        kind: "same words", "paraphrase" or "trap".
        stored, asked: The two questions.
        served: The stored answer was given.
        right: It should have been given, and was; or should not, and was not.
        reason: Which kind of hit, or why not.
        similarity: Of the two questions for this embedder; None where nothing was compared.
        milliseconds: Until the answer was there.
    """

    language: str
    kind: str
    stored: str
    asked: str
    served: bool
    right: bool
    reason: str
    similarity: float | None
    milliseconds: float

    @property
    def verdict(self) -> str:
        """Return ok, FAIL, or missed: a paraphrase that was not recognised costs a call, no more.

        Equal questions must hit, and a trap must not.
        """
        if self.right:
            return "ok"
        return "missed" if self.kind == "paraphrase" else "FAIL"


# --- prefix ------------------------------------------------------------------------------------

_ADVICE = {
    "ok": "",
    "below_floor": "the prefix is shorter than this model caches: nothing to do",
    "not_readable": "requests of this kind never read the cache",
    "floor_unknown": "the target reports no cached tokens: on vLLM start the server with "
    "--enable-prompt-tokens-details and --enable-prefix-caching; at a provider look whether the "
    "model has a prompt cache",
    "unexpected_miss": "nothing was reused: look at --enable-prefix-caching (vLLM), at several "
    "replicas without routing by prefix, and at a gateway that adds a clock or an id in front",
}


async def prefix_checks(settings: Settings) -> list[PrefixCheck]:
    """Ask the target twice with one long prefix, in each language; none without a target.

    Raises:
        ConfigError: A setting is wrong, or an extra is missing.
    """
    alone = _with(settings, "store", kind="none")
    async with RagCache.open(_with(alone, "embedding", model="")) as cache:
        if cache.target is None:
            return []
        return [await _checked(cache.target, pair) for pair in PAIRS]


async def _checked(target: Target, pair: Pair) -> PrefixCheck:
    """Check a pair; a target that fails is a finding too."""
    try:
        return await _prefix(target, pair)
    except TargetError as error:
        return PrefixCheck(
            language=pair.language,
            first=TimedCall(),
            second=TimedCall(),
            verdict="failed",
            advice=str(error),
        )


async def _prefix(target: Target, pair: Pair) -> PrefixCheck:
    rules = find_rules(target.provider, target.model)
    floor = rules.min_tokens if rules is not None else None
    system = _long_prefix(pair, tokens=max(PREFIX_TOKENS, (floor or 0) * 5 // 4))
    first = await _timed(target, system, pair.stored)
    second = await _timed(target, system, pair.trap)
    word = judged_reuse(
        min(first.input or 0, second.input or 0),
        second.cached or 0,
        floor=floor if second.cached is not None else None,
        step=rules.step_tokens if rules is not None else 1,
    )
    return PrefixCheck(
        language=pair.language, first=first, second=second, verdict=word, advice=_ADVICE[word]
    )


def _long_prefix(pair: Pair, *, tokens: int) -> str:
    """Return a prefix that nobody has sent before, of about so many tokens."""
    # A token is about four letters, or one Chinese character.
    characters = tokens * (4 if pair.document.isascii() else 1)
    lines = (pair.document + "\n") * (characters // len(pair.document) + 1)
    return f"[{secrets.token_hex(8)}]\n{lines}"


async def _timed(target: Target, system: str, question: str) -> TimedCall:
    messages = (Message(role="system", content=system), Message(role="user", content=question))
    call = Call(model=target.model, messages=messages, params={"max_tokens": 8, "temperature": 0})
    began_s, ttft_s = time.perf_counter(), None
    usage = Usage()
    async for chunk in target.stream(call):
        if ttft_s is None and chunk.text:
            ttft_s = time.perf_counter() - began_s
        usage = chunk.completion.usage if chunk.completion is not None else usage
    return TimedCall(ttft_s=ttft_s, input=usage.input_tokens, cached=usage.cached_tokens)


# --- lookups -----------------------------------------------------------------------------------


class _Answering:
    """Gives the answers of the pairs: what is checked is the cache, not the model.

    Only what is to be stored is answered to its end. The rest is cut short, so that the guard,
    which has hits answered anew to learn how many are wrong, learns nothing from made-up answers.
    """

    provider = "generic"
    name = "ragcache verify"
    model = "verify"

    async def complete(self, call: Call) -> Completion:
        asked = call.messages[-1].text()
        answer = next((p.answer for p in PAIRS if p.stored in asked), None)
        finish = "stop" if answer is not None else "length"
        return Completion(text=answer or "...", finish_reason=finish, model=self.model)

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        completion = await self.complete(call)
        yield Chunk(text=completion.text, completion=completion)


async def lookup_checks(settings: Settings) -> list[LookupCheck]:
    """Store an answer, ask again in other words, and ask the trap, in each language.

    Everything happens in a tenant of its own, whose entries are removed again.

    Raises:
        RagCacheError: A part of the cache is not there.
    """
    tenant = TenantId(f"ragcache-verify-{secrets.token_hex(6)}")
    async with RagCache.open(_apart(settings), target=_Answering()) as cache:
        try:
            return [check for pair in PAIRS for check in await _lookups(cache, tenant, pair)]
        finally:
            with contextlib.suppress(RagCacheError):  # what is wrong is told by the checks
                if cache.store is not None:
                    await cache.store.purge(tenant)


async def _lookups(cache: RagCache, tenant: TenantId, pair: Pair) -> list[LookupCheck]:
    documents = (Document(text=pair.document, source=f"verify-{pair.language}"),)

    async def ask(question: str) -> tuple[Answer, float]:
        began_s = time.perf_counter()
        # What is asked here is not stored: each question meets the first one alone.
        asked = Request(
            tenant=tenant,
            question=question,
            documents=documents,
            no_store=question != pair.stored,
        )
        answer = await cache.answer(asked)
        return answer, (time.perf_counter() - began_s) * 1000

    await ask(pair.stored)
    kinds = (("same words", pair.stored), ("paraphrase", pair.same), ("trap", pair.trap))
    return [_compared(pair, kind, asked, *await ask(asked)) for kind, asked in kinds]


def _compared(
    pair: Pair, kind: str, asked: str, answer: Answer, milliseconds: float
) -> LookupCheck:
    served = answer.status.hit is not None
    return LookupCheck(
        language=pair.language,
        kind=kind,
        stored=pair.stored,
        asked=asked,
        served=served,
        right=served == (kind != "trap"),
        reason=answer.status.hit or answer.status.reason,
        similarity=answer.status.similarity,
        milliseconds=milliseconds,
    )


#: Made-up answers teach the guard nothing, and are not worth asking anybody anew for.
_UNTAUGHT = {"shared": False, "verify_share": 0.0, "verify_share_thin": 0.0}


def _apart(settings: Settings) -> Settings:
    """Nothing is recorded. The cache's own parts are waited for: what they need is shown."""
    quiet = _with(settings, "telemetry", record=False, prometheus=False, opentelemetry=False)
    quiet = quiet.model_copy(update={"guard": {**settings.guard, **_UNTAUGHT}})
    return _with(quiet, "budgets", store_ms=5_000, embed_ms=30_000, put_ms=5_000)


def _with(settings: Settings, section: str, **values: Any) -> Settings:
    """Return the settings with some values of a section changed."""
    changed = getattr(settings, section).model_copy(update=values)
    return settings.model_copy(update={section: changed})
