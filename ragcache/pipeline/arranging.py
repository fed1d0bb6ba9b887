"""Stage 3a: arrange the prompt, knowing what was sent before, and mark it for its provider."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..events import LaidOut
from ..keys import cache_salt
from ..layout import (
    Clusters,
    Conversation,
    LayoutPolicy,
    MarkPlan,
    Plan,
    PrefixForest,
    arrange,
    conversation_key,
    from_json,
    next_key,
    plan_breakpoints,
    remembered,
    to_json,
)
from ..layout.plan import Count
from ..providers import find_rules
from ..types import Call, Completion, Layout, Message, Miss, Request
from .asking import Asking
from .parts import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """A prompt ready to be sent, and what must be remembered once it was."""

    call: Call
    layout: Layout
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
        self._parts = parts
        self._policy = policy
        self._salt_secret = salt_secret
        self._clock = clock
        self._count = count
        self._conversation_s = conversation_s
        self._clusters = Clusters()

    async def arrange(self, asking: Asking) -> Arranged:
        """Return the prompt; it counts as sent from now on."""
        conversation = await self._recalled(asking)
        began_s = time.perf_counter()
        now_s = self._clock().timestamp()
        group = "/".join(asking.trust_group)
        forest, policy = self._state_of(asking.request)
        tree = forest.tree(group)
        layout = arrange(
            asking.request,
            policy=policy,
            tree=tree,
            count=self._count,
            conversation=conversation,
            now_s=now_s,
        )
        difference = tree.difference(layout)
        if difference is not None:
            layout = replace(layout, notes=(*layout.notes, str(difference)))
        rules = find_rules(asking.asked.provider, asking.asked.model)
        marks = plan_breakpoints(layout, rules=rules, tree=tree, now_s=now_s)
        call = self._call(asking, layout, marks, now_s)
        forest.remember(
            group, layout.plan, marks=marks if rules and rules.marked else None, now_s=now_s
        )
        self._parts.emit(LaidOut, asking, began_s, layout=layout)
        return Arranged(call=call, layout=layout, conversation=conversation)

    def _state_of(self, request: Request) -> tuple[PrefixForest, LayoutPolicy]:
        """Return the trees and the policy for a request; what nobody owns meets no tree."""
        if not request.anonymous:
            return self.forest, self._policy
        stateless = "sorted" if self._policy.ordering == "prefix_tree" else self._policy.ordering
        return PrefixForest(), replace(self._policy, ordering=stateless)

    def _call(self, asking: Asking, layout: Layout, marks: MarkPlan, now_s: float) -> Call:
        salt = cache_salt(self._salt_secret, *asking.trust_group) if self._salt_secret else None
        rules = find_rules(asking.asked.provider, asking.asked.model)
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
        if store is None or request.no_store or request.formatted is not None:
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
        self._parts.later(
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


def _converses(request: Request) -> bool:
    return request.formatted is None and bool(request.session or request.history)


def _place(asking: Asking) -> tuple[str, ...]:
    """Whose conversation it is: sessions of two principals never meet."""
    return (*asking.trust_group, asking.scope.principal)
