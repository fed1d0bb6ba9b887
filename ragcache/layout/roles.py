"""Messages in the roles that a host's chat template accepts.

Some templates take one system message at position 0 only, some none, some demand that user and
assistant alternate, some do not know `developer`. What is moved stays in the prompt: system texts
join at the front, a note in the middle goes into the next user turn, marked as what it is. Every
earlier turn maps to the same bytes on the next turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ..types import Content, JsonObject, Layout, Message
from .plan import Plan
from .render import BLOCK_SEPARATOR, boundaries_of, parts_of

#: any: as they are. strict: one system message first, alternating turns. no_system: none at all.
Host = Literal["any", "strict", "no_system"]

#: Where each message went: the new message, and the offset of its text in that one's.
_Places = list[tuple[int, int]]


def for_host(layout: Layout, host: Host, *, developer: bool = False) -> Layout:
    """Return the layout with its messages in the roles of a host.

    Args:
        layout: As arranged.
        host: What its chat template accepts.
        developer: The host knows the role `developer`.
    """
    messages, places = adapted(layout.messages, host, developer=developer)
    if messages == layout.messages or not isinstance(layout.plan, Plan):
        return replace(layout, messages=messages)
    cuts = tuple(
        (places[index][0], places[index][1] + offset) for index, offset in layout.plan.cuts
    )
    parts = parts_of(messages, layout.tools)
    return replace(
        layout,
        messages=messages,
        boundaries=boundaries_of(messages, parts, cuts),
        plan=replace(layout.plan, cuts=cuts, parts=parts),
    )


def adapted(
    messages: Sequence[Message], host: Host, *, developer: bool = False
) -> tuple[tuple[Message, ...], _Places]:
    """Return the messages in the roles of a host, and where each of them went."""
    named = [message if developer else _as_system(message) for message in messages]
    if host == "any":
        return tuple(named), [(at, 0) for at in range(len(named))]
    return _Turns(host).of(named)


def _as_system(message: Message) -> Message:
    return replace(message, role="system") if message.role == "developer" else message


class _Turns:
    """Joins messages into turns that a strict template accepts."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._turns: list[Message] = []
        self._places: _Places = []
        self._waiting: list[str] = []

    def of(self, messages: Sequence[Message]) -> tuple[tuple[Message, ...], _Places]:
        """Return the turns, and where each message went."""
        opening = True
        for message in messages:
            if message.role in ("system", "developer"):
                self._system(message, opening=opening)
                continue
            opening = False
            self._turn(message)
        if self._waiting:
            self._turn(Message(role="user", content=""))
            self._places.pop()
        return tuple(self._turns), self._places

    def _system(self, message: Message, *, opening: bool) -> None:
        if opening and self._host == "strict":
            self._append(replace(message, role="system"))
            return
        text = message.text()
        self._waiting.append(text if opening else f"[Note from the system: {text}]")
        self._places.append((len(self._turns), 0))

    def _turn(self, message: Message) -> None:
        if message.role == "user" and self._waiting:
            note = BLOCK_SEPARATOR.join(self._waiting)
            self._waiting = []
            before = len(note) + len(BLOCK_SEPARATOR)
            self._append(replace(message, content=_joined(note, message.content)), before)
            return
        self._append(message)

    def _append(self, message: Message, offset: int = 0) -> None:
        last = self._turns[-1] if self._turns else None
        mergeable = message.role in ("system", "user") and not message.tool_calls
        if last is not None and last.role == message.role and mergeable:
            start = len(last.text()) + len(BLOCK_SEPARATOR)
            self._turns[-1] = replace(last, content=_joined(last.content, message.content))
            self._places.append((len(self._turns) - 1, start + offset))
            return
        self._turns.append(message)
        self._places.append((len(self._turns) - 1, offset))


def _joined(one: Content, other: Content) -> Content:
    """Return two contents as one, text as text, parts as parts."""
    if not one or not other:
        return one or other
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}{BLOCK_SEPARATOR}{other}"
    return (*_parts(one), {"type": "text", "text": BLOCK_SEPARATOR}, *_parts(other))


def _parts(content: Content) -> tuple[JsonObject, ...]:
    return ({"type": "text", "text": content},) if isinstance(content, str) else content
