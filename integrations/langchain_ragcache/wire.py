"""From a laid out call to what the user's model is given: its own messages, blocks moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage, SystemMessage

from ragcache.keys import content_hash
from ragcache.sent import Arrangement, SentTurns
from ragcache.types import Call, Formatted

from .markers import Mode, marks, planned, room
from .messages import text_at, with_content
from .providers import with_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How one request's layout becomes messages and arguments.

    Args:
        model: The model that gets them.
        messages: The caller's own; never changed.
        formatted: The same prompt with its blocks located.
        tenant: Whose turns are remembered.
        sent: How earlier turns were sent.
        provider: What `wrap` said, for extra fields.
        takes_markers: The provider matches only at marked places.
        stateless: The order of blocks depends on nothing but the blocks: nobody said whose they
            are, so nobody's earlier prompts may decide it.
        markers: When markers of our own are set.
        marker_ttl_s: Lifetime of our own markers; None is the provider's shortest.
    """

    model: BaseChatModel
    messages: Sequence[BaseMessage]
    formatted: Formatted
    tenant: str
    sent: SentTurns
    provider: str | None = None
    takes_markers: bool = False
    stateless: bool = False
    markers: Mode = "planned"
    marker_ttl_s: int | None = None

    def prepare(
        self, call: Call, given: dict[str, Any]
    ) -> tuple[list[BaseMessage], dict[str, Any]]:
        """Return messages and arguments for the model."""
        messages = [self._as_sent(at, message) for at, message in enumerate(self.messages)]
        if self.formatted.blocks:
            at = self.formatted.index
            marked = self._marks(call, given) if self.takes_markers else {}
            if head := marked.pop(-1, None):
                _mark_system(messages, head)
            messages[at] = self._arranged(messages[at], call, marked)
        return messages, with_fields(self.model, self.provider, call, given)

    def _as_sent(self, at: int, message: BaseMessage) -> BaseMessage:
        """Return an earlier turn as it was sent then."""
        if at == self.formatted.index and self.formatted.blocks:
            return message
        if not isinstance(message.content, str):
            return message
        known = self.sent.find(self.tenant, message.content)
        return message if known is None else with_content(message, known.content(message.content))

    def _arranged(
        self, message: BaseMessage, call: Call, marked: dict[int, dict[str, Any]]
    ) -> BaseMessage:
        formatted = self.formatted
        blocks = formatted.blocks
        order = _by_content(blocks) if self.stateless else _order(call, len(blocks))
        arrangement = Arrangement.of(formatted, order, tuple(sorted(marked)))
        text = text_at(message, formatted.part)
        if formatted.part is None:
            self.sent.remember(self.tenant, text, arrangement)
        return with_content(message, arrangement.content(text, marked), part=formatted.part)

    def _marks(self, call: Call, given: dict[str, Any]) -> dict[int, dict[str, Any]]:
        formatted = self.formatted
        wanted = planned(
            call.breakpoints,
            blocks=len(formatted.blocks),
            chars=len(formatted.head) + sum(map(len, formatted.blocks)),
            mode=self.markers,
            ttl_s=self.marker_ttl_s,
        )
        return marks(wanted, room(self.messages, given, at=formatted.index))


def _mark_system(messages: list[BaseMessage], marker: dict[str, Any]) -> None:
    """Mark the end of the last system message, where there is one and it is not marked."""
    for at in range(len(messages) - 1, -1, -1):
        if isinstance(messages[at], SystemMessage):
            content = messages[at].content
            parts: list[Any] = [content] if isinstance(content, str) else list(content)
            last = parts[-1] if parts else ""
            last = {"type": "text", "text": last} if isinstance(last, str) else last
            if last.get("type") == "text" and last["text"] and "cache_control" not in last:
                marked = [*parts[:-1], {**last, "cache_control": marker}]
                messages[at] = with_content(messages[at], marked)
            return


def _by_content(blocks: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted(range(len(blocks)), key=lambda at: content_hash(blocks[at])))


def _order(call: Call, count: int) -> tuple[int, ...]:
    """Return the order that the layout chose for the blocks, as they were if it chose none."""
    placed = call.layout.blocks if call.layout else ()
    order = tuple(block.rank for block in placed if block.rank < count)
    return order if len(order) == count else tuple(range(count))
