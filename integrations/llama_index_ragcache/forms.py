"""The two forms in which LlamaIndex calls a model: a chat of messages, and a completion of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from .replies import chat_piece, chat_reply, completion_piece, completion_reply

#: What a model is asked: messages, or a text.
Prompt: TypeAlias = Sequence[ChatMessage] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Names of the four doors, and how answers look that come from no model of LlamaIndex's."""

    whole: str
    awhole: str
    stream: str
    astream: str
    reply: Callable[..., Any]
    piece: Callable[..., Any]


CHAT = Form(
    whole="chat",
    awhole="achat",
    stream="stream_chat",
    astream="astream_chat",
    reply=chat_reply,
    piece=chat_piece,
)
COMPLETION = Form(
    whole="complete",
    awhole="acomplete",
    stream="stream_complete",
    astream="astream_complete",
    reply=completion_reply,
    piece=completion_piece,
)


def messages_of(prompt: Prompt) -> Sequence[ChatMessage]:
    """Return a prompt as messages: a text is one message of the user's."""
    if isinstance(prompt, str):
        return [ChatMessage(role=MessageRole.USER, content=str(prompt))]
    return prompt
