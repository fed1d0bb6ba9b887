"""From a laid out call to what the user's LLM is given: its own messages, blocks moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from llama_index.core.base.llms.types import (
    CacheControl,
    CachePoint,
    ChatMessage,
    ContentBlock,
    TextBlock,
)

from ragcache.layout.markers import Mode, marks, planned
from ragcache.sent import Arrangement, SentTurns
from ragcache.types import Call, Formatted

from .forms import Prompt
from .markers import room
from .messages import text_at, with_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How one request's layout becomes a prompt again.

    Args:
        llm: Who gets it.
        prompt: The caller's own; never changed.
        formatted: The same prompt with its blocks located.
        tenant: Whose turns are remembered.
        sent: How earlier turns were sent.
        takes_markers: The provider matches only at marked places.
        markers: When markers of our own are set.
        marker_ttl_s: Lifetime of our own markers; None is the provider's shortest.
    """

    llm: Any
    prompt: Prompt
    formatted: Formatted
    tenant: str
    sent: SentTurns
    takes_markers: bool = False
    markers: Mode = "planned"
    marker_ttl_s: int | None = None

    def prepare(self, call: Call, given: Mapping[str, Any]) -> Prompt:
        """Return the prompt for the LLM."""
        if isinstance(self.prompt, str):
            text = str(self.prompt)
            return self._arrangement(call, ()).pieces(text)[0] if self.formatted.blocks else text
        messages = [self._as_sent(at, message) for at, message in enumerate(self.prompt)]
        if self.formatted.blocks:
            at = self.formatted.index
            messages[at] = self._arranged(messages[at], call, self._marks(call, given))
        return messages

    def _as_sent(self, at: int, message: ChatMessage) -> ChatMessage:
        """Return an earlier turn as it was sent then."""
        if at == self.formatted.index and self.formatted.blocks:
            return message
        if len(message.blocks) != 1 or not isinstance(message.blocks[0], TextBlock):
            return message
        text = message.blocks[0].text
        known = self.sent.find(self.tenant, text)
        return message if known is None else with_blocks(message, None, _blocks(known, text, {}))

    def _arranged(
        self, message: ChatMessage, call: Call, marked: Mapping[int, Mapping[str, Any]]
    ) -> ChatMessage:
        part = self.formatted.part
        arrangement = self._arrangement(call, tuple(sorted(marked)))
        text = text_at(message, part)
        if part is None:
            self.sent.remember(self.tenant, text, arrangement)
        return with_blocks(message, part, _blocks(arrangement, text, marked))

    def _arrangement(self, call: Call, splits: tuple[int, ...]) -> Arrangement:
        order = _order(call, len(self.formatted.blocks))
        return Arrangement.of(self.formatted, order, splits)

    def _marks(self, call: Call, given: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        if not self.takes_markers or isinstance(self.prompt, str):
            return {}
        formatted = self.formatted
        wanted = planned(
            call.breakpoints,
            blocks=len(formatted.blocks),
            chars=len(formatted.head) + sum(map(len, formatted.blocks)),
            mode=self.markers,
            ttl_s=self.marker_ttl_s,
        )
        at_blocks = tuple(point for point in wanted if point.block >= 0)  # the head has no parts
        return marks(at_blocks, room(self.llm, self.prompt, given, at=formatted.index))


def with_earlier_turns(call: Call, formatted: Formatted, *, tenant: str, sent: SentTurns) -> Call:
    """Return the call with earlier turns as they were sent then; note how the newest is."""
    if len(call.messages) != len(formatted.messages):
        return call
    messages = list(call.messages)
    for at, message in enumerate(formatted.messages):
        text = message.content
        if not isinstance(text, str):
            continue
        if at == formatted.index and formatted.blocks:
            order = _order(call, len(formatted.blocks))
            sent.remember(tenant, text, Arrangement.of(formatted, order, ()))
        elif known := sent.find(tenant, text):
            messages[at] = replace(messages[at], content=known.content(text))
    return replace(call, messages=tuple(messages))


def _blocks(
    arrangement: Arrangement, text: str, marked: Mapping[int, Mapping[str, Any]]
) -> list[ContentBlock]:
    """Return the text as sent: one block, or several with a marker behind each but the last."""
    blocks: list[ContentBlock] = []
    for at, piece in enumerate(arrangement.pieces(text)):
        if not piece:
            continue
        blocks.append(TextBlock(text=piece))
        place = arrangement.splits[at] if at < len(arrangement.splits) else None
        if place is not None and place in marked:
            blocks.append(CachePoint(cache_control=CacheControl(**marked[place])))
    return blocks


def _order(call: Call, count: int) -> tuple[int, ...]:
    """Return the order that the layout chose for the blocks, as they were if it chose none."""
    placed = call.layout.blocks if call.layout else ()
    order = tuple(block.rank for block in placed if block.rank < count)
    return order if len(order) == count else tuple(range(count))
