"""From a Chat Completions reply, or its pieces, to a completion."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..errors import TargetError
from ..types import Completion
from .usage import usage_of

_DATA: Final = "data:"
_DONE: Final = "[DONE]"
#: Members of a piece that its text and the end of the stream tell.
_PLAIN: Final = frozenset({"role", "content"})


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


def event_of(line: str) -> Mapping[str, Any] | None:
    """Read one line of a stream of server-sent events, None where it carries nothing.

    The official client would make an object of classes of each piece: that costs more than all
    the rest of ragcache's work on a streamed answer, which needs three fields of it.

    Raises:
        TargetError: The line is an error, or no JSON.
    """
    if not line.startswith(_DATA):
        return None
    data = line[len(_DATA) :].strip()
    if data == _DONE:
        return None
    try:
        event = json.loads(data)
    except ValueError as error:
        raise TargetError(f"the target streams what is no JSON: {data[:80]!r}") from error
    if not isinstance(event, Mapping) or event.get("error"):
        raise broken_off(event)
    return event


def broken_off(event: Any) -> TargetError:
    """Return the error that a target put into its stream."""
    error = event.get("error") if isinstance(event, Mapping) else event
    told = error if isinstance(error, Mapping) else {"message": error}
    code = told.get("code")
    return TargetError(
        f"the target failed: {told.get('message')}",
        status=code if isinstance(code, int) else None,
        body=event,
        kind=str(told.get("type") or code or ""),
    )


def says_more(event: Mapping[str, Any]) -> bool:
    """Whether a piece of a stream says more than the text of the first choice and how it ended."""
    choices = event.get("choices") or ()
    return any(_is_more(choice) for choice in choices)


def _is_more(choice: Mapping[str, Any]) -> bool:
    if choice.get("index") or choice.get("logprobs"):
        return True
    delta = choice.get("delta") or {}
    return any(value for name, value in delta.items() if name not in _PLAIN)


class Collected:
    """The pieces of a stream, put together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._last: Mapping[str, Any] = {}
        self._finish: str | None = None
        self._usage: Mapping[str, Any] | None = None

    def take(self, event: Mapping[str, Any]) -> str:
        """Note a piece and return its text."""
        self._last = event
        if usage := event.get("usage"):
            self._usage = usage
        for choice in event.get("choices") or ():
            if not choice.get("index"):
                return self._choice(choice)
        return ""

    def _choice(self, choice: Mapping[str, Any]) -> str:
        if reason := choice.get("finish_reason"):
            self._finish = reason
        delta = choice.get("delta") or {}
        if refusal := delta.get("refusal"):
            self._refusal.append(refusal)
        for call in delta.get("tool_calls") or ():
            _merge(self._calls, call)
        text: str = delta.get("content") or ""
        if text:
            self._text.append(text)
        return text

    def completion(self) -> Completion:
        """Return the whole answer."""
        return Completion(
            text="".join(self._text),
            finish_reason=self._finish,
            tool_calls=tuple(self._calls[at] for at in sorted(self._calls)),
            refusal="".join(self._refusal) or None,
            usage=usage_of(self._usage),
            model=self._last.get("model") or "",
            id=self._last.get("id") or "",
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
