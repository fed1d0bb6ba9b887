"""From a Chat Completions reply, or its pieces, to a completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import TargetError
from ..types import Completion
from .usage import usage_of


def completion_of(reply: Mapping[str, Any]) -> Completion:
    """Read a whole reply.

    Raises:
        TargetError: It is an error, or holds no choice.
    """
    if reply.get("error"):
        raise TargetError(f"the target answered with an error: {reply['error']}", body=reply)
    choices = reply.get("choices") or []
    if not choices:
        raise TargetError("the target answered without a choice", body=reply)
    message = choices[0].get("message") or {}
    return Completion(
        text=message.get("content") or "",
        finish_reason=choices[0].get("finish_reason"),
        tool_calls=tuple(message.get("tool_calls") or ()),
        refusal=message.get("refusal"),
        usage=usage_of(reply.get("usage")),
        model=reply.get("model") or "",
        id=reply.get("id") or "",
        raw=reply,
    )


class Collected:
    """The pieces of a stream, put together.

    Pieces are read by attribute: turning each of them into a dict first costs more than all the
    rest of ragcache's work on a streamed answer.
    """

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: Any = None
        self._model = ""
        self._id = ""

    def take(self, piece: Any) -> str:
        """Note a piece and return its text."""
        self._model = getattr(piece, "model", "") or self._model
        self._id = getattr(piece, "id", "") or self._id
        self._usage = getattr(piece, "usage", None) or self._usage
        for choice in getattr(piece, "choices", None) or ():
            if not choice.index:
                return self._choice(choice)
        return ""

    def _choice(self, choice: Any) -> str:
        self._finish = choice.finish_reason or self._finish
        delta = choice.delta
        if delta is None:
            return ""
        if refusal := getattr(delta, "refusal", None):  # vLLM has none
            self._refusal.append(refusal)
        for call in delta.tool_calls or ():
            _merge(self._calls, call.model_dump())
        text: str = delta.content or ""
        if text:
            self._text.append(text)
        return text

    def completion(self) -> Completion:
        """Return the whole answer."""
        dump = getattr(self._usage, "model_dump", None)
        return Completion(
            text="".join(self._text),
            finish_reason=self._finish,
            tool_calls=tuple(self._calls[at] for at in sorted(self._calls)),
            refusal="".join(self._refusal) or None,
            usage=usage_of(dump() if dump else self._usage),
            model=self._model,
            id=self._id,
        )


def _merge(calls: dict[int, dict[str, Any]], piece: Mapping[str, Any]) -> None:
    call = calls.setdefault(
        piece.get("index") or 0,
        {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
    )
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""
