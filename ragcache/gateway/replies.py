"""An answer in the shapes of OpenAI's API: whole, and as the pieces of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from ..binding import told_of
from ..types import Answer, Chunk, Completion, Usage

DONE: Final = b"data: [DONE]\n\n"
#: Stands for a text: no name of a model or a request holds it.
_HOLE: Final = "\0\0"
#: Members of a message that tell something by being null.
_NULLABLE: Final = frozenset({"content", "refusal"})


@dataclass(frozen=True, kw_only=True)  # no slots: what frames a piece is made once
class Reply:
    """How the answer to one request is written.

    Args:
        kind: Whose shape: that of `/v1/chat/completions` or of `/v1/completions`.
        request_id: Of the request: what is not the upstream's own is named after it.
        model: As it was asked for.
        created_s: Seconds since 1970.
        include_usage: A stream ends with its usage.
        explains: Say what the cache did.
    """

    kind: Literal["chat", "text"]
    request_id: str
    model: str
    created_s: int
    include_usage: bool = False
    explains: bool = False

    # --- whole -----------------------------------------------------------------------------------

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the body of a whole answer: the upstream's own where it has just given it."""
        raw = answer.completion.raw if answer.completion else None
        body = _cleaned(raw) if isinstance(raw, Mapping) else self._made(answer)
        if answer.status.collapsed:  # paid for by the request that was first
            body |= {"id": self._id, "usage": usage_body(answer.usage)}
        if self.explains:
            body["ragcache"] = explained(answer)
        return body

    def _made(self, answer: Answer) -> dict[str, Any]:
        completion = answer.completion or Completion(text=answer.text, finish_reason="stop")
        head = self._head("chat.completion" if self.kind == "chat" else "text_completion")
        finish = completion.finish_reason
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
        if self.kind == "text":
            choice["text"] = answer.text
        else:
            choice["message"] = _message(answer.text, completion)
        model = completion.model or self.model
        usage = usage_body(answer.usage)
        return {**head, "model": model, "choices": [choice], "usage": usage}

    # --- in pieces -------------------------------------------------------------------------------

    def opening(self) -> bytes:
        """Return what stands before the first piece."""
        if self.kind == "text":
            return b""
        return self._event([_choice({"role": "assistant", "content": ""})])

    def piece(self, chunk: Chunk) -> bytes:
        """Return a piece: the upstream's own words where it says more than text."""
        if isinstance(chunk.raw, Mapping):
            kept = {k: v for k, v in chunk.raw.items() if k not in ("usage", "id", "created")}
            return _data({**self._head(), **kept, "model": self.model})
        if not chunk.text:
            return b""
        before, after = self._around
        return before + encoded(chunk.text) + after

    @cached_property
    def _around(self) -> tuple[bytes, bytes]:
        """What stands ahead of a piece's text and behind it, which is all that differs."""
        if self.kind == "text":
            choice = {"index": 0, "text": _HOLE, "logprobs": None, "finish_reason": None}
        else:
            choice = _choice({"content": _HOLE})
        before, _, after = self._event([choice]).rpartition(encoded(_HOLE))
        return before, after

    def closing(self, answer: Answer, *, native: bool, finished: bool) -> bytes:
        """Return what ends a stream.

        Args:
            answer: The whole of it.
            native: The upstream's own pieces were passed on, tool calls among them.
            finished: And one of them said how the answer ended.
        """
        completion = answer.completion or Completion(text=answer.text, finish_reason="stop")
        delta = {} if native or self.kind == "text" else _unsaid(completion)
        said = self._event([_choice(delta)]) if delta else b""
        finish = completion.finish_reason or "stop"
        choice = _choice({}, finish) if self.kind == "chat" else _text_choice(finish)
        extra = {"ragcache": explained(answer)} if self.explains else {}
        end = self._event([] if finished else [choice], **extra) if extra or not finished else b""
        return said + end + self._usage(answer.usage) + DONE

    def _usage(self, usage: Usage) -> bytes:
        known = usage_body(usage)
        return self._event([], usage=known) if self.include_usage and known is not None else b""

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        return _data({**self._head(), "choices": choices, **more})

    def _head(self, name: str = "") -> dict[str, Any]:
        kinds = {"chat": "chat.completion.chunk", "text": "text_completion"}
        return {
            "id": self._id,
            "object": name or kinds[self.kind],
            "created": self.created_s,
            "model": self.model,
        }

    @property
    def _id(self) -> str:
        return f"{'chatcmpl' if self.kind == 'chat' else 'cmpl'}-{self.request_id}"


def error_event(body: Mapping[str, Any]) -> bytes:
    """Return the piece that ends a stream with an error; clients of OpenAI raise it."""
    return _data(body)


def explained(answer: Answer) -> dict[str, Any]:
    """Return what the cache did, and the documents that the answer cites by label."""
    citations = {
        label: {"sources": list(cited.sources), "documents": list(cited.ranks)}
        for label, cited in answer.citations.items()
    }
    return {**told_of(answer), **({"citations": citations} if citations else {})}


def usage_body(usage: Usage) -> dict[str, Any] | None:
    """Return a usage in OpenAI's shape, None where it is not known."""
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    body: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    if usage.cached_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cached_tokens}
    if usage.reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body


def _cleaned(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the upstream's reply without the members that its client has added as null."""
    body = {name: value for name, value in raw.items() if value is not None}
    body["usage"] = _without_nulls(raw.get("usage"))
    body["choices"] = [_cleaned_choice(choice) for choice in raw.get("choices") or ()]
    return body


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}


def _cleaned_choice(choice: Mapping[str, Any]) -> dict[str, Any]:
    message = choice.get("message")
    if not isinstance(message, Mapping):
        return dict(choice)
    kept = {n: v for n, v in message.items() if v is not None or n in _NULLABLE}
    return {**choice, "message": kept}


def _message(text: str, completion: Completion) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": text or None if completion.tool_calls or completion.refusal else text,
        "refusal": completion.refusal,
    }
    if completion.tool_calls:
        message["tool_calls"] = [dict(call) for call in completion.tool_calls]
    return message


def _unsaid(completion: Completion) -> dict[str, Any]:
    """Return what an answer holds beside its text, from an upstream that tells it at the end."""
    delta: dict[str, Any] = {}
    if completion.tool_calls:
        delta["tool_calls"] = [{"index": n, **c} for n, c in enumerate(completion.tool_calls)]
    if completion.refusal:
        delta["refusal"] = completion.refusal
    return delta


def _choice(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}


def _text_choice(finish: str) -> dict[str, Any]:
    return {"index": 0, "text": "", "logprobs": None, "finish_reason": finish}


def _data(body: Mapping[str, Any]) -> bytes:
    return b"data: " + encoded(body) + b"\n\n"


def encoded(value: Any) -> bytes:
    """Return JSON as it goes over the wire."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
