"""The order of the stages.

    request -> keys -> exact lookup -> semantic lookup -> flight -> layout -> target
            -> admission -> store -> answer

A stage decides in plain functions; here the decisions are carried out. Whatever the cache does
wrong is passed by: the request goes on to the target, and the status says why.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

from .. import answers
from ..admission import KeyRing
from ..errors import ConfigError, StoreUnavailableError, TargetError
from ..events import Answered, Hooks
from ..flight import Flight
from ..layout import PrefixForest
from ..layout.plan import Count, quarter_of_characters
from ..lookup import Standing
from ..protocols import Embedder, Mirrored, Named, Store, Target, Verifier, Watched
from ..types import ZERO_USAGE, Answer, Chunk, Hit, Miss, Request
from .answering import Answers
from .arranging import Arranging
from .asking import Asked, Asking, Outcome, Policies, Understanding, ask, utc_now
from .batch import Wanted, answered
from .calling import Calling
from .finding import Finding
from .guarding import Guarding
from .invalidation import Documents, Epoch
from .parts import Parts
from .rollout import Rollouts, WarmStep
from .second import SecondOpinion
from .storing import Storing
from .turns import Turns

_log = logging.getLogger("ragcache")


class Pipeline:
    """Answers requests from the cache where that is safe, else from the target.

    Args:
        target: Who answers a miss; a request may bring its own.
        store: Where answers live; without one only the prompt layout works.
        embedder: Without one only equal questions hit.
        verifier: A second opinion on candidates of the grey zone.
        keyring: Signs entries; without one nothing is stored or served.
        salt_secret: Derives KV cache salts for targets that take them.
        policies: What is decided how.
        clock: The one clock of all lifetimes.
        hooks: Subscribers of events.
        count: Counts tokens of a text; a quarter of its characters by default.
        deployment: Processes of one deployment share what they learn of the error rate.
        draw: Uniform numbers in [0, 1): which hits are verified, how far lifetimes vary.
        system: System text of requests that bring none.
    """

    def __init__(
        self,
        *,
        target: Target | None = None,
        store: Store | None = None,
        embedder: Embedder | None = None,
        verifier: Verifier | None = None,
        keyring: KeyRing | None = None,
        salt_secret: bytes = b"",
        policies: Policies | None = None,
        clock: Callable[[], datetime] = utc_now,
        hooks: Hooks | None = None,
        count: Count = quarter_of_characters,
        deployment: str = "default",
        draw: Callable[[], float] = random.random,
        system: str = "",
    ) -> None:
        policies = policies or Policies()
        self.target = target
        self.hooks = hooks or Hooks()
        self._clock = clock
        self._count = count
        self._system = system
        self._parts = Parts(
            store=store,
            embedder=embedder,
            verifier=verifier,
            budgets=policies.budgets,
            hooks=self.hooks,
        )
        self._guarding = Guarding(
            self._parts, policy=policies.guarding, clock=clock, deployment=deployment, draw=draw
        )
        self._policies = policies
        self._storing = storing = Storing(
            self._parts, policy=policies.admission, keyring=keyring, clock=clock, draw=draw
        )
        self._arranging = Arranging(
            self._parts,
            policy=policies.layout,
            salt_secret=salt_secret,
            clock=clock,
            count=count,
        )
        second = SecondOpinion(
            self._parts,
            threshold=policies.second_at,
            judge=policies.judge,
            salt=self._arranging.salt,
        )
        self._finding = Finding(
            self._parts,
            self._guarding,
            policies=policies,
            keyring=keyring,
            clock=clock,
            second=second,
        )
        self._rollouts = Rollouts(self._parts, self._arranging, clock=clock)
        self._calling = Calling(
            self._parts,
            self._guarding,
            self._arranging,
            storing,
            self._rollouts,
            second,
            warm_first_s=policies.budgets.warm_first_s,
        )
        if isinstance(target, Watched):
            target.watch(self.forest.clear)
        if isinstance(target, Mirrored):
            self._arranging.held = target.held
        self._turns = Turns(self._parts, wait_s=policies.budgets.turn_s)
        self._flight: Flight[Chunk | Outcome | Hit] = Flight()

    @property
    def store(self) -> Store | None:
        """The store, for operators' work on entries."""
        return self._parts.store

    @property
    def forest(self) -> PrefixForest:
        """The prefix trees, one for each trust group."""
        return self._arranging.forest

    @property
    def documents(self) -> Documents:
        """Where changed and removed documents are announced."""
        return Documents(self._parts, self.forest)

    @property
    def epoch(self) -> Epoch:
        """Where whole namespaces are killed."""
        return Epoch(self._parts)

    def answers(
        self, *, tenant: str, model: str = "", prompt_version: str = "", **fields: Any
    ) -> Answers:
        """Return the face for those who call the model themselves.

        Args:
            tenant: Whose answers.
            model: The model that writes them; another one is another partition.
            prompt_version: The version of the prompt around the question; likewise.
            fields: Further fields of `Request` that hold for all questions.
        """
        base = Request(tenant=tenant, question="", model=model, version=prompt_version, **fields)
        return Answers(
            self._finding,
            self._storing,
            base=base,
            policies=self._policies,
            clock=self._clock,
        )

    # --- life ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store. A store that is down leaves caching off until it is back.

        Raises:
            ConfigError: The embedding model cannot be loaded.
            StoreError: The store is there but must not be used: wrong schema or isolation.
        """
        try:
            await self._parts.open()
            await self._recall()
        except BaseException:
            await self.close()
            raise

    async def _recall(self) -> None:
        try:
            await self._guarding.hand_in()
        except StoreUnavailableError as error:
            _log.warning("what was learned of the error rate is not at hand: %s", error)

    async def close(self) -> None:
        """Finish what is under way and give everything back."""
        await self._flight.close()
        await self._parts.close()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    # --- doors ---------------------------------------------------------------------------------

    async def answer(self, request: Request, *, target: Target | None = None) -> Answer:
        """Return the answer, from the cache if that is safe, else from the target.

        Raises:
            MissingTenantError: The request names no tenant.
            NotCachedError: Only a cached answer was wanted.
            TargetError: The target failed; other errors of a target of your own pass unchanged.
        """
        return await self._whole(self._run(request, target, streaming=False))

    @staticmethod
    async def _whole(running: AsyncGenerator[Chunk, None]) -> Answer:
        answer = None
        async with contextlib.aclosing(running) as chunks:
            async for chunk in chunks:
                answer = chunk.answer or answer
        if answer is None:
            raise TargetError("the target ended without an answer")
        return answer

    def stream(
        self, request: Request, *, target: Target | None = None
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the answer in pieces; the last chunk carries the whole with its status.

        Raises the same errors as `answer`.
        """
        return self._run(request, target, streaming=True)

    def warm(
        self,
        request: Request,
        *,
        target: Target | None = None,
        limit: int = 20,
        max_tokens: int = 200_000,
        canary: bool = False,
        after_model: str | None = None,
    ) -> AsyncGenerator[WarmStep, None]:
        """Send the prefixes that were asked for most, so that a new version finds them cached.

            async for step in cache.warm(Request(tenant="acme", system=new, question="")): ...

        Each prefix is sent with the shortest answer that the target gives, one after another.

        Args:
            request: Whose prefixes: tenant, sharing, model, parameters; `system` is the new system
                text, or empty to keep each prefix's own.
            target: Who is warmed; the cache's own target for None.
            limit: Most prefixes.
            max_tokens: Most tokens of all prefixes together.
            canary: Until all are sent, requests of the tenant with this `request.version` are
                answered by the target alone: nothing is served from the cache or stored.
            after_model: The model whose traffic is known, where the new version is another model.

        Raises:
            ConfigError: A canary without a version.
            TargetError: The target failed several times in a row.
        """
        target = self._target(target)
        return self._rollouts.warm(
            self._asking(request, target),
            target,
            limit=limit,
            max_tokens=max_tokens,
            canary=canary,
            after_model=after_model,
        )

    async def foresee(self, request: Request, *, model: Named) -> Hit | Miss:
        """Return what would be served to a request whose documents are not retrieved yet.

        For retrievers, which may be spared then. Rights and currency of the stored answer's
        documents are looked at as ever; whether newer ones would be found is not known. Nothing
        is served by this, and nothing counted.

        Args:
            request: As it will be asked, without documents.
            model: Who would answer it.

        Raises:
            MissingTenantError: The request names no tenant.
        """
        if self._rollouts.is_cold(request):
            return Miss(reason="canary", fwd="bypass")
        return await self._finding.foresee(self._asking(request, model))

    def report_bad(self, answer: Answer) -> bool:
        """Note that a user called an answer wrong: its entry is taken out of service.

        Returns: Whether the answer was a semantic hit of this process that is still known.
        """
        return self._guarding.reported(answer.request_id)

    def standing(self, request: Request, *, target: Target | None = None) -> Standing:
        """Return what the guard holds for this request's partition: threshold, bound, counts."""
        return self._guarding.standing(self._asking(request, self._target(target)))

    def abatch(
        self, requests: Sequence[Request], *, target: Target | None = None, concurrency: int = 4
    ) -> AsyncGenerator[tuple[int, Answer | Exception], None]:
        """Yield (number of the request, its answer or what its target raised) as they come.

        Exact entries come first, without the target; the rest goes out in the order that reuses
        the most tokens, at most `concurrency` at a time.
        """

        async def ask_one(request: Request, wanted: Wanted) -> Answer:
            return await self._whole(self._run(request, target, streaming=False, wanted=wanted))

        async def look(request: Request) -> Answer | None:
            asking = self._asking(request, self._target(target))
            found = await self._finding.again(asking)
            return (
                self._served(asking, self._target(target), found)
                if isinstance(found, Hit)
                else None
            )

        return answered(
            requests,
            look,
            ask_one,
            policy=self._policies.layout,
            count=self._count,
            concurrency=concurrency,
        )

    async def _run(
        self, request: Request, target: Target | None, *, streaming: bool, wanted: Wanted = None
    ) -> AsyncGenerator[Chunk, None]:
        target = self._target(target)
        asking = self._asking(request, target, wanted)
        understanding = Understanding()
        if self._rollouts.is_cold(request):
            asking = replace(asking, request=request.replace(no_cache=True, no_store=True))
            found: Hit | Miss = Miss(reason="canary", fwd="bypass")
        else:
            found = await self._finding.find(asking, understanding)
        if isinstance(found, Hit):
            for chunk in _replayed(self._served(asking, target, found)):
                yield chunk
            return
        items, joined = self._joined(asking, target, found, understanding, streaming=streaming)
        async with contextlib.aclosing(items) as following:
            async for item in following:
                for chunk in self._chunks(item, asking, target, found, joined=joined):
                    yield chunk

    def _asking(self, request: Request, target: Named, wanted: Wanted = None) -> Asking:
        model = request.model or target.model
        if self._system and not _has_system(request):
            request = request.replace(system=self._system)
        asked = Asked(
            name=target.name,
            model=model,
            provider=target.provider,
            revision=self._policies.revision,
            policy=self._policies.version,
        )
        return ask(request, asked, self._policies.admission, wanted=wanted)

    def _target(self, given: Target | None) -> Target:
        target = given or self.target
        if target is None:
            raise ConfigError("no target: set api.base_url and model.name, or pass target=")
        return target

    def _served(
        self, asking: Asking, target: Target, hit: Hit, *, collapsed: bool = False
    ) -> Answer:
        now = self._clock()
        answer = answers.from_entry(asking.request, hit, now=now, request_id=asking.request_id)
        status = replace(answer.status, collapsed=True) if collapsed else answer.status
        answer = replace(answer, ttft_s=time.perf_counter() - asking.began_s, status=status)
        self._finding.used(asking, hit, lambda: self._calling.regenerate(asking, target))
        saved = answers.usage_of(hit.entry.answer)
        self._parts.emit(Answered, asking, asking.began_s, answer=answer, saved_usage=saved)
        return answer

    def _joined(
        self,
        asking: Asking,
        target: Target,
        miss: Miss,
        understanding: Understanding,
        *,
        streaming: bool,
    ) -> tuple[AsyncGenerator[Chunk | Outcome | Hit, None], bool]:
        """Join the call that runs for this request already, or lead one."""

        def lead() -> AsyncIterator[Chunk | Outcome | Hit]:
            calling = self._calling.lead(asking, target, understanding, streaming=streaming)
            waits = self._parts.store is not None and miss.fwd in ("miss", "stale")
            return self._in_turn(asking, calling) if waits else calling

        return self._flight.join(_flight_key(asking), lead)

    async def _in_turn(
        self, asking: Asking, calling: AsyncGenerator[Chunk | Outcome, None]
    ) -> AsyncGenerator[Chunk | Outcome | Hit, None]:
        """Call the target, unless another process is just doing so."""
        turn = self._turns.taken(asking, self._finding.again)
        async with contextlib.aclosing(calling), turn as hit:
            if hit is not None:
                yield hit
                return
            async for item in calling:
                yield item

    def _chunks(
        self,
        item: Chunk | Outcome | Hit,
        asking: Asking,
        target: Target,
        miss: Miss,
        *,
        joined: bool,
    ) -> tuple[Chunk, ...]:
        """Return what the caller gets of an item of a call."""
        match item:
            case Chunk():
                return (item,)
            case Hit():
                return _replayed(self._served(asking, target, item, collapsed=True))
            case Outcome():
                answer = self._answered(asking, miss, item, collapsed=joined)
                return (Chunk(completion=answer.completion, answer=answer),)

    def _answered(self, asking: Asking, miss: Miss, outcome: Outcome, *, collapsed: bool) -> Answer:
        status = answers.status_of(
            miss,
            outcome.verdict,
            stored=outcome.stored,
            store_reason=outcome.store_reason,
            collapsed=collapsed,
        )
        answer = answers.from_completion(
            asking.request,
            outcome.completion,
            outcome.layout,
            status=status,
            reuse=outcome.reuse,
            request_id=asking.request_id,
            ttft_s=outcome.ttft_s,
        )
        if collapsed:
            answer = replace(answer, usage=ZERO_USAGE)
        self._parts.emit(Answered, asking, asking.began_s, answer=answer)
        return answer


def _replayed(answer: Answer) -> tuple[Chunk, ...]:
    return Chunk(text=answer.text), Chunk(completion=answer.completion, answer=answer)


def _flight_key(asking: Asking) -> str:
    """Requests collapse when everything that reaches the target and the store is equal.

    One that asks not to be served from the cache wants a call of its own.
    """
    request = asking.request
    alone = asking.request_id if request.no_cache or request.no_collapse else ""
    return f"{asking.keys.exact}:{request.no_store}:{request.refresh}:{alone}"


def _has_system(request: Request) -> bool:
    return bool(request.system or request.formatted) or any(
        message.role in ("system", "developer") for message in request.history
    )
