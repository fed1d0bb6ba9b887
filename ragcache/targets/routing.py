"""Which replica a request goes to: where its prefix was last sent, elsewhere on load or fault.

Each replica has a KV cache of its own. A prompt sent to another one than its prefix is computed
again there, and pushes out what that one holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ..keys import fingerprint
from ..layout import Plan
from ..types import Call, Fingerprint

#: A quarter of the characters: good enough to weigh one prefix against another.
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A prefix of a prompt: its name, and the tokens of its last piece."""

    key: Fingerprint
    tokens: int


def links_of(call: Call) -> tuple[Link, ...]:
    """Return the prefixes of a prompt, shortest first: head, then each block or turn.

    The salt is part of every name: equal prompts of two trust groups share nothing in an engine.
    """
    plan = call.layout.plan if call.layout is not None else None
    if isinstance(plan, Plan):
        pieces = [(step.key, step.tokens) for step in (plan.head, *plan.steps)]
    else:
        texts = [f"{message.role}:{message.text()}" for message in call.messages]
        pieces = [(fingerprint(text), len(text) // _CHARACTERS_PER_TOKEN) for text in texts]
    links, key = [], fingerprint(call.model, call.cache_salt or "")
    for piece, tokens in pieces:
        key = fingerprint(key, piece)
        links.append(Link(key=key, tokens=tokens))
    return tuple(links)


class Router:
    """Remembers which replica holds which prefix, and what each is doing.

    Args:
        replicas: How many there are.
        max_prefixes: How many prefixes are remembered, least recently used forgotten first.
        max_lead: How many requests more than the least busy replica one may have under way before
            its prefixes count for nothing.
    """

    def __init__(self, replicas: int, *, max_prefixes: int = 50_000, max_lead: int = 4) -> None:
        self.busy = [0] * replicas
        self._max_prefixes = max_prefixes
        self._max_lead = max_lead
        self._held: OrderedDict[Fingerprint, int] = OrderedDict()
        self._sent_tokens = [0] * replicas

    @property
    def remembers(self) -> bool:
        """Whether any replica is believed to hold anything."""
        return bool(self._held)

    def choose(self, links: Sequence[Link], *, among: Collection[int]) -> int:
        """Return the replica for a prompt.

        Args:
            links: Of the prompt.
            among: Replicas that may be asked, at least one.
        """
        least = min(self.busy[at] for at in among)
        fit = [at for at in sorted(among) if self.busy[at] - least < self._max_lead]
        held = self._tokens_held(links)
        # The head alone is everybody's: what tells replicas apart are the blocks behind it.
        head = links[0].tokens if len(links) > 1 else 0
        best = max(fit, key=lambda at: held[at])
        if held[best] > head:
            return best
        return min(fit, key=lambda at: (self.busy[at], self._sent_tokens[at]))

    def _tokens_held(self, links: Sequence[Link]) -> list[int]:
        """Return the tokens of the longest prefix that each replica was last sent."""
        held, tokens = [0] * len(self.busy), 0
        for link in links:
            tokens += link.tokens
            at = self._held.get(link.key)
            if at is not None:
                held[at] = tokens
        return held

    def began(self, replica: int, links: Sequence[Link]) -> None:
        """Note that a prompt goes to a replica."""
        self.busy[replica] += 1
        for link in links:
            if self._held.get(link.key) != replica:
                self._sent_tokens[replica] += link.tokens
            self._held[link.key] = replica
            self._held.move_to_end(link.key)
        while len(self._held) > self._max_prefixes:
            self._held.popitem(last=False)

    def ended(self, replica: int) -> None:
        """Note that its answer is over."""
        self.busy[replica] -= 1

    def forget(self, replica: int) -> None:
        """Forget what a replica held: it is another engine now."""
        for key in [key for key, at in self._held.items() if at == replica]:
            del self._held[key]
        self._sent_tokens[replica] = 0
