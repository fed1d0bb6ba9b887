"""Stage 3a: arrange the prompt, knowing what was sent before, and mark it for its provider."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..events import LaidOut
from ..keys import cache_salt, fingerprint
from ..layout import (
    BlockHash,
    CacheRules,
    Clusters,
    Conversation,
    GroupTree,
    LayoutPolicy,
    MarkPlan,
    Plan,
    PrefixForest,
    SentBefore,
    Served,
    arrange,
    caller_marks,
    cause_of_gap,
    conversation_key,
    from_json,
    learn_life,
    next_key,
    plan_breakpoints,
    remembered,
    to_json,
)
from ..layout.plan import Count
from ..providers import find_rules
from ..types import Call, Completion, Layout, Message, Miss, Request, Reuse
from .asking import Asking
from .parts import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """A prompt ready to be sent, and what must be remembered once it was.

    `expected` is what is known of its reuse before the target has answered.
    """

    call: Call
    layout: Layout
    expected: Served
    tree: GroupTree
    conversation: Conversation | None = None


class Arranging:
    """Lays prompts out. Keeps one prefix tree for each trust group, and conversations in the store.

    Args:
        parts: The store keeps conversations.
        policy: How prompts are arranged.
        salt_secret: Derives KV cache salts and cache keys.
        clock: The one clock.
        count: Counts the tokens of a text.
        conversation_s: How long an idle conversation is remembered.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        policy: LayoutPolicy,
        salt_secret: bytes,
        clock: Callable[[], datetime],
        count: Count,
        conversation_s: float = 86_400.0,
    ) -> None:
        self.forest = PrefixForest()
        #: What the target's engines hold by their own events, where they tell.
        self.held: Container[bytes] | None = None
        self._parts = parts
        self._policy = policy
        self._salt_secret = salt_secret
        self._clock = clock
        self._count = count
        self._conversation_s = conversation_s
        self._clusters = Clusters()

    async def arrange(self, asking: Asking, *, whole: bool = False) -> Arranged:
        """Return the prompt; it counts as sent from now on.

        Args:
            asking: What is asked.
            whole: Its documents stand in the order wanted and are a prefix to be written to the
                end: a warm-up.
        """
        conversation = await self._recalled(asking)
        began_s = time.perf_counter()
        now_s = self._clock().timestamp()
        group = group_of(asking)
        forest, policy = self._state_of(asking.request, whole=whole)
        rules = find_rules(asking.asked.provider, asking.asked.model)
        tree = forest.tree(group, rules=rules)
        tree.tree.held = self.held
        layout = arrange(
            asking.request,
            policy=policy,
            tree=tree,
            count=self._count,
            conversation=conversation,
            now_s=now_s,
            wanted=asking.wanted,
        )
        layout = _with_difference(layout, tree)
        marks = plan_breakpoints(
            layout,
            rules=rules,
            tree=tree,
            mode="always" if whole else self._policy.marks,
            ttl_s=self._policy.marks_ttl_s,
            now_s=now_s,
        )
        if rules is not None and rules.marked:
            layout = replace(layout, predicted_tokens=marks.read_tokens)
        expected = self._expected(asking, layout, tree, rules, marks, now_s)
        call = self._call(asking, layout, rules, marks, now_s)
        if not asking.request.anonymous:
            forest.hot.note(group, asking.request, layout)
        forest.remember(
            group, layout.plan, marks=marks if rules and rules.marked else None, now_s=now_s
        )
        self._parts.emit(LaidOut, asking, began_s, layout=layout)
        return Arranged(
            call=call, layout=layout, expected=expected, tree=tree, conversation=conversation
        )

    def _state_of(self, request: Request, *, whole: bool) -> tuple[PrefixForest, LayoutPolicy]:
        """Return the trees and the policy for a request; what nobody owns meets no tree."""
        if whole:
            return self.forest, replace(self._policy, ordering="retrieved", min_prefix_tokens=0)
        if not request.anonymous:
            return self.forest, self._policy
        stateless = "sorted" if self._policy.ordering == "prefix_tree" else self._policy.ordering
        return PrefixForest(), replace(self._policy, ordering=stateless)

    def salt(self, asking: Asking) -> str | None:
        """Return what keeps the request's KV blocks to its trust group; None without a secret."""
        return cache_salt(self._salt_secret, *asking.trust_group) if self._salt_secret else None

    def _call(
        self,
        asking: Asking,
        layout: Layout,
        rules: CacheRules | None,
        marks: MarkPlan,
        now_s: float,
    ) -> Call:
        salt = self.salt(asking)
        key = None
        if salt is not None and isinstance(layout.plan, Plan):
            key = self._clusters.key(layout.plan, rules=rules, salt=salt, now_s=now_s)
        return Call(
            model=asking.asked.model,
            messages=layout.messages,
            tools=layout.tools,
            params={k: v for k, v in asking.request.params.items() if k != "cache_salt"},
            cache_salt=salt,
            prompt_cache_key=key,
            breakpoints=marks.breakpoints,
            layout=layout,
        )

    # --- predicted against served --------------------------------------------------------------

    def _expected(
        self,
        asking: Asking,
        layout: Layout,
        tree: GroupTree,
        rules: CacheRules | None,
        marks: MarkPlan,
        now_s: float,
    ) -> Served:
        plan = layout.plan
        before, elsewhere = SentBefore(), SentBefore()
        if isinstance(plan, Plan):
            before = tree.sent_before(plan, now_s=now_s)
            sibling = self.forest.find(group_of(asking, other=True))
            elsewhere = sibling.sent_before(plan, now_s=now_s) if sibling else SentBefore()
        other = elsewhere if elsewhere.tokens > before.tokens else None
        marked = bool(marks.breakpoints) or bool(caller_marks(layout.messages, layout.tools))
        return Served(
            predicted_tokens=layout.predicted_tokens,
            served_tokens=None,
            sent_tokens=(other or before).tokens,
            rules=rules,
            marked=marked,
            idle_s=(other or before).idle_s,
            other_salt=other is not None,
            block_size=self._policy.block_size,
        )

    def reuse(self, arranged: Arranged, completion: Completion) -> Reuse:
        """Return what was predicted and served, and why they differ; learn from it."""
        predicted, tree = completion.predicted_tokens, arranged.tree
        known = replace(arranged.expected, served_tokens=completion.usage.cached_tokens)
        if predicted is not None:
            known = replace(known, predicted_tokens=predicted, mirrored=True)
        plan, engine = arranged.layout.plan, completion.engine
        if engine is not None and isinstance(plan, Plan):
            tree.note_engine(
                plan,
                [BlockHash(name) for name in engine.names],
                block_size=engine.block_size,
                prompt_tokens=engine.prompt_tokens,
            )
        cause = cause_of_gap(known)
        learn_life(tree.learned, known)
        return Reuse(
            predicted_tokens=known.predicted_tokens,
            served_tokens=known.served_tokens,
            cause=cause,
            notes=arranged.layout.notes,
        )

    # --- conversations -------------------------------------------------------------------------

    async def _recalled(self, asking: Asking) -> Conversation | None:
        store, request = self._parts.store, asking.request
        if store is None or not _converses(request):
            return None
        key = conversation_key(request, *_place(asking))
        found = await self._parts.stored(
            asking, store.recall(asking.scope.tenant, "conversation", key, now=self._clock())
        )
        return None if found is None or isinstance(found, Miss) else from_json(found)

    def remember(self, asking: Asking, arranged: Arranged, completion: Completion) -> None:
        """Keep what this turn sent, in the background, for the next turn to continue."""
        store, request = self._parts.store, asking.request
        if store is None or self._parts.store_is_away:
            return
        if request.no_store or request.formatted is not None:
            return
        answer = Message(role="assistant", content=completion.text)
        now = self._clock()
        state = remembered(request, arranged.layout, answer, now_s=now.timestamp())
        if state is None or completion.finish_reason != "stop":
            return
        place = _place(asking)
        key = (
            conversation_key(request, *place)
            if request.session
            else next_key(request, answer, *place)
        )
        self._parts.queued(
            store.remember(
                asking.scope.tenant,
                "conversation",
                key,
                to_json(state),
                now=now,
                expire_at=now + timedelta(seconds=self._conversation_s),
                principal=asking.scope.principal,
            )
        )


def group_of(asking: Asking, *, other: bool = False, model: str | None = None) -> str:
    """Return the name of the tree for a request: caches of two models share nothing.

    Args:
        asking: The request.
        other: Of the same tenant's other trust group instead, whose KV blocks it may not share.
        model: Of another model instead.
    """
    trust = asking.trust_group
    if other:
        trust = ("tenant", asking.scope.tenant) if trust == ("public",) else ("public",)
    return _group(trust, asking.asked.name, model or asking.asked.model)


@functools.lru_cache(maxsize=4096)
def _group(trust: tuple[str, ...], target: str, model: str) -> str:
    return fingerprint("group", trust, target, model)


def _with_difference(layout: Layout, tree: GroupTree) -> Layout:
    difference = tree.difference(layout)
    if difference is None:
        return layout
    return replace(layout, notes=(*layout.notes, str(difference)))


def _converses(request: Request) -> bool:
    return request.formatted is None and bool(request.session or request.history)


def _place(asking: Asking) -> tuple[str, ...]:
    """Whose conversation it is: sessions of two principals never meet."""
    return (*asking.trust_group, asking.scope.principal)
