"""From a laid out call to what the user's LLM is given: its own messages, blocks moved."""

from __future__ import annotations

from dataclasses import dataclass

from llama_index.core.base.llms.types import ChatMessage, TextBlock

from ragcache.sent import Arrangement, SentTurns
from ragcache.types import Call, Formatted

from .forms import Prompt
from .messages import with_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How one request's layout becomes a prompt again.

    Args:
        prompt: The caller's own; never changed.
        formatted: The same prompt with its blocks located.
        tenant: Whose turns are remembered.
        sent: How earlier turns were sent.
    """

    prompt: Prompt
    formatted: Formatted
    tenant: str
    sent: SentTurns

    def prepare(self, call: Call) -> Prompt:
        """Return the prompt for the LLM."""
        if isinstance(self.prompt, str):
            return self._arranged(str(self.prompt), call) if self.formatted.blocks else self.prompt
        messages = [self._as_sent(at, message) for at, message in enumerate(self.prompt)]
        if self.formatted.blocks:
            at, part = self.formatted.index, self.formatted.part
            text = _text(self.formatted, at, part)
            arranged = self._arranged(text, call)
            if arranged != text:
                messages[at] = with_text(messages[at], part, arranged)
        return messages

    def _as_sent(self, at: int, message: ChatMessage) -> ChatMessage:
        """Return an earlier turn as it was sent then."""
        if at == self.formatted.index and self.formatted.blocks:
            return message
        if len(message.blocks) != 1 or not isinstance(message.blocks[0], TextBlock):
            return message
        text = message.blocks[0].text
        known = self.sent.find(self.tenant, text)
        return message if known is None else with_text(message, None, known.pieces(text)[0])

    def _arranged(self, text: str, call: Call) -> str:
        arrangement = Arrangement.of(self.formatted, _order(call, len(self.formatted.blocks)), ())
        if self.formatted.part is None:
            self.sent.remember(self.tenant, text, arrangement)
        return arrangement.pieces(text)[0]


def _text(formatted: Formatted, at: int, part: int | None) -> str:
    content = formatted.messages[at].content
    return str(content if isinstance(content, str) else content[part or 0].get("text", ""))


def _order(call: Call, count: int) -> tuple[int, ...]:
    """Return the order that the layout chose for the blocks, as they were if it chose none."""
    placed = call.layout.blocks if call.layout else ()
    order = tuple(block.rank for block in placed if block.rank < count)
    return order if len(order) == count else tuple(range(count))
