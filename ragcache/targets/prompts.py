"""The completions endpoint of an OpenAI-compatible server: a bare prompt, continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..types import Call, Completion
from .openai import OpenAITarget
from .replies import completion_of, event_of


class PromptTarget(OpenAITarget):
    """`/completions` of a server, with the arguments of `OpenAITarget`.

    A call's one message is the prompt: its text, or what its one content part holds as `prompt`
    (token ids, several prompts).
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.name += "completions"  # the same text answered as a chat is another answer
        completions = self._client.completions
        self._create = completions.create
        self._open = completions.with_streaming_response.create

    def _arguments(self, call: Call) -> dict[str, Any]:
        made = super()._arguments(call)
        content = made.pop("messages")[0]["content"]
        made["prompt"] = content if isinstance(content, str) else content[0]["prompt"]
        return made

    def _completion(self, reply: Mapping[str, Any]) -> Completion:
        return replace(completion_of(_as_chat(reply, "message")), raw=reply)

    def _event(self, line: str) -> Mapping[str, Any] | None:
        event = event_of(line)
        return None if event is None else _as_chat(event, "delta")


def _as_chat(reply: Mapping[str, Any], member: str) -> Mapping[str, Any]:
    """Return a reply whose choices also hold their text where a chat's would."""
    choices = [
        {**choice, member: {"content": choice.get("text")}} for choice in reply.get("choices") or ()
    ]
    return {**reply, "choices": choices}
