"""A conversation as it was sent: earlier turns stay byte for byte, documents are sent once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..keys import fingerprint
from ..types import Block, Document, Fingerprint, Label, Message, Request
from .plan import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A block of an earlier turn: which message holds it, and where its text ends."""

    block: Block
    message: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What one conversation has sent so far.

    Args:
        head: Hash of tools and system as sent.
        given: Every turn as the caller knows it: questions and answers.
        sent: The same messages as they were sent, one for one.
        placed: The blocks that stand in `sent`, in order.
        steps: The prefix that ends behind each of them.
        used_at_s: When the last turn was sent.
    """

    head: Fingerprint
    given: tuple[Message, ...] = ()
    sent: tuple[Message, ...] = ()
    placed: tuple[Placed, ...] = ()
    steps: tuple[Step, ...] = ()
    used_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """Earlier turns as they must be sent now.

    Args:
        messages: In front of the newest turn.
        placed: Blocks that stand in them.
        steps: Their prefixes.
        matched: How many messages are the ones that were sent.
        cause: Why reuse is lost, where it is: what the caller passed back is not what was sent.
    """

    messages: tuple[Message, ...]
    placed: tuple[Placed, ...] = ()
    steps: tuple[Step, ...] = ()
    matched: int = 0
    cause: str = ""


def conversation_key(request: Request, *trust_group: str) -> Fingerprint:
    """Return under which key the state of this request's conversation is kept.

    The caller's session where there is one, else the turns themselves: who passes back the same
    turns continues the same conversation.
    """
    if request.session:
        return fingerprint("session", trust_group, request.session)
    return fingerprint("turns", trust_group, request.system, list(request.history))


def next_key(request: Request, answer: Message, *trust_group: str) -> Fingerprint:
    """Return the key under which the next turn will look for the state."""
    asked = Message(role="user", content=request.question)
    return conversation_key(
        request.replace(history=(*request.history, asked, answer)), *trust_group
    )


def continued(
    history: Sequence[Message], conversation: Conversation | None, head: Fingerprint
) -> Continued:
    """Return the earlier turns as they were sent, as far as the caller's turns are those.

    From the first message that differs on, the caller's own are sent.
    """
    if conversation is None:
        return Continued(messages=tuple(history))
    matched = _common(history, conversation)
    placed = tuple(p for p in conversation.placed if p.message < matched)
    return Continued(
        messages=(*conversation.sent[:matched], *history[matched:]),
        placed=placed,
        steps=conversation.steps[: len(placed)],
        matched=matched,
        cause=_cause(history, conversation, matched, head),
    )


def _common(history: Sequence[Message], conversation: Conversation) -> int:
    """Return how many messages are what was sent, or what the caller knew of it."""
    count = 0
    for message, given, sent in zip(history, conversation.given, conversation.sent, strict=False):
        if message not in (given, sent):
            break
        count += 1
    return count


def _cause(
    history: Sequence[Message], conversation: Conversation, matched: int, head: Fingerprint
) -> str:
    if head != conversation.head:
        return "reuse lost: system message or tools changed within the conversation"
    if not history and conversation.given:
        return "reuse lost: the conversation was begun anew"
    if matched < min(len(history), len(conversation.given)):
        at = _offset(history[matched], conversation.given[matched])
        return (
            f"reuse lost: message {matched + 1} of the history is not what was sent "
            f"(first difference at byte {at}): it was edited or summarised"
        )
    return ""


def _offset(one: Message, other: Message) -> int:
    before, after = one.text().encode("utf-8", "replace"), other.text().encode("utf-8", "replace")
    pairs = zip(before, after, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))


def extended(
    request: Request,
    *,
    head: Fingerprint,
    sent: Sequence[Message],
    placed: Sequence[Placed],
    steps: Sequence[Step],
    answer: Message,
    now_s: float = 0.0,
) -> Conversation:
    """Return the state after a turn was answered; `sent` leaves the system message out."""
    asked = Message(role="user", content=request.question)
    return Conversation(
        head=head,
        given=(*request.history, asked, answer),
        sent=(*sent, answer),
        placed=tuple(placed),
        steps=tuple(steps),
        used_at_s=now_s,
    )


# --- as plain data, for the store ----------------------------------------------------------------


def to_json(conversation: Conversation) -> dict[str, Any]:
    """Return the state as plain data. A document's text is kept once, in its message."""
    return {
        "v": 1,
        "head": conversation.head,
        "given": [_message_json(message) for message in conversation.given],
        "sent": [_message_json(message) for message in conversation.sent],
        "placed": [_placed_json(placed) for placed in conversation.placed],
        "steps": [[s.key, s.tokens, list(s.names)] for s in conversation.steps],
        "used_at_s": conversation.used_at_s,
    }


def from_json(data: Mapping[str, Any]) -> Conversation | None:
    """Return the state from plain data, None where another version wrote it."""
    if data.get("v") != 1:
        return None
    sent = tuple(_message(entry) for entry in data["sent"])
    return Conversation(
        head=Fingerprint(data["head"]),
        given=tuple(_message(entry) for entry in data["given"]),
        sent=sent,
        placed=tuple(_placed(entry, sent) for entry in data["placed"]),
        steps=tuple(
            Step(key=Fingerprint(key), tokens=tokens, names=tuple(names))
            for key, tokens, names in data["steps"]
        ),
        used_at_s=float(data["used_at_s"]),
    )


def _message_json(message: Message) -> dict[str, Any]:
    content = message.content
    return {
        "role": message.role,
        "content": content if isinstance(content, str) else [dict(part) for part in content],
        "name": message.name,
        "tool_calls": [dict(call) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
        "extra": dict(message.extra),
    }


def _message(entry: Mapping[str, Any]) -> Message:
    content = entry["content"]
    return Message(
        role=entry["role"],
        content=content if isinstance(content, str) else tuple(content),
        name=entry["name"],
        tool_calls=tuple(entry["tool_calls"]),
        tool_call_id=entry["tool_call_id"],
        extra=entry["extra"],
    )


def _placed_json(placed: Placed) -> dict[str, Any]:
    block = placed.block
    return {
        "label": block.label,
        "hash": block.hash,
        "message": placed.message,
        "end": placed.end,
        "length": len(block.text),
        "documents": [_document_json(document, block.text) for document in block.documents],
    }


def _document_json(document: Document, block: str) -> dict[str, Any]:
    """Return a document without its text where that stands in the block as it is."""
    at = block.find(document.text) if document.text else -1
    text: Any = [at, len(document.text)] if at >= 0 else document.text
    return {
        "text": text,
        "source": document.source,
        "id": document.id,
        "access": sorted(document.access),
    }


def _placed(entry: Mapping[str, Any], sent: Sequence[Message]) -> Placed:
    end = entry["end"]
    text = sent[entry["message"]].text()[end - entry["length"] : end]
    block = Block(
        label=Label(entry["label"]),
        text=text,
        hash=Fingerprint(entry["hash"]),
        documents=tuple(_document(document, text) for document in entry["documents"]),
        rank=0,
    )
    return Placed(block=block, message=entry["message"], end=end)


def _document(entry: Mapping[str, Any], block: str) -> Document:
    text = entry["text"]
    if not isinstance(text, str):
        start, length = text
        text = block[start : start + length]
    return Document(
        text=text, source=entry["source"], id=entry["id"], access=frozenset(entry["access"])
    )


def ranked_behind(placed: Sequence[Placed], first: int) -> tuple[Placed, ...]:
    """Return earlier blocks with ranks behind every document of this turn."""
    return tuple(replace(p, block=replace(p.block, rank=first + at)) for at, p in enumerate(placed))
