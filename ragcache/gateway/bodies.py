"""The bodies that the gateway takes: what it reads of them is checked, all else is passed on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from .faults import Fault, malformed

#: Deeper JSON is nobody's request; keys are made by walking it.
_DEPTH_MAX: Final = 64
#: Longest lifetime and age that is worth telling apart, in seconds: about ten years.
AGE_MAX_S: Final = 2**28
#: Where the upstream is, and what it is sent with: never a request's choice.
_SETTINGS: Final = frozenset(
    {"timeout", "extra_body", "extra_headers", "extra_query", "base_url", "api_key", "headers"}
    | {"default_headers"}
)
#: Another spelling of {"ragcache": {"documents": ...}}.
_DOTTED: Final = "ragcache.documents"

Name = Annotated[str, Field(min_length=1, max_length=256)]
Seconds = Annotated[float, Field(ge=0, le=AGE_MAX_S)]


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class DocumentBody(BaseModel):
    """A retrieved document, as `ragcache.documents` carries it, best first."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str = Field(min_length=1)
    source: str = Field(default="", description="A name that stays when the text changes.")
    id: str | None = None
    score: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    access: list[str] = Field(
        default_factory=list, description="Tags that an asker must hold, all of them."
    )


class CacheBody(BaseModel):
    """What a body may tell the cache; removed before the upstream is asked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    documents: list[str | DocumentBody] = Field(default_factory=list, max_length=1000)
    standalone: str | None = Field(
        default=None, description="The question in words that need no history."
    )
    session: str | None = Field(default=None, max_length=256)
    version: str = Field(default="", max_length=256)
    no_cache: bool = False
    no_store: bool = False
    refresh: bool = False
    only_if_cached: bool = False
    max_age_s: Seconds | None = None
    ttl_s: Seconds | None = None
    expire_at: AwareDatetime | None = Field(default=None, strict=False)
    threshold: float | None = Field(default=None, ge=-1, le=1)


class MessageBody(_Open):
    """A chat message."""

    role: Name
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class FunctionBody(_Open):
    """A function that the model may call."""

    name: str


class ToolBody(_Open):
    """A tool that the model may call."""

    type: str = "function"
    function: FunctionBody | None = None


class StreamOptionsBody(_Open):
    """What a stream carries beside the answer."""

    include_usage: bool | None = None


class _Asked(_Open):
    model: Name | None = Field(default=None, description="The gateway's own where none is given.")
    stream: bool | None = False
    stream_options: StreamOptionsBody | None = None
    n: int | None = Field(default=None, ge=1, le=128)
    ragcache: CacheBody = Field(default_factory=CacheBody)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatBody(_Asked):
    """The body of `/v1/chat/completions`; members that are not named here are passed on."""

    messages: list[MessageBody] = Field(min_length=1)
    tools: list[ToolBody] | None = None


class PromptBody(_Asked):
    """The body of `/v1/completions`; members that are not named here are passed on."""

    prompt: str | list[str] | list[int] | list[list[int]]


B = TypeVar("B", bound=_Asked)


def read(raw: bytes, kind: type[B]) -> tuple[B, dict[str, Any]]:
    """Return a body, checked, and as it came.

    Raises:
        Fault: 400, with what is wrong and where.
    """
    whole = _json(raw)
    if _DOTTED in whole:
        given = whole.get("ragcache", {})
        if not isinstance(given, Mapping) or "documents" in given:
            raise malformed("documents are given twice, or 'ragcache' is no object", "ragcache")
        whole["ragcache"] = {**given, "documents": whole.pop(_DOTTED)}
    if refused := sorted(_SETTINGS & whole.keys()):
        raise malformed(f"{refused[0]!r} is the operator's to set, not a request's", refused[0])
    try:
        return kind.model_validate(whole), whole
    except ValidationError as error:
        raise _wrong(error) from error


def _json(raw: bytes) -> dict[str, Any]:
    try:
        whole = json.loads(raw, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise malformed(f"the body is no JSON: {_brief(error)}", code="invalid_json") from error
    if not isinstance(whole, dict):
        raise malformed("the body must be a JSON object", code="invalid_json")
    _refuse_unusable(whole)
    return whole


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _brief(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)


def _refuse_unusable(whole: Any) -> None:
    """Refuse what JSON allows and nobody downstream can carry: half characters, a deep nest."""
    level = [whole]
    for _ in range(_DEPTH_MAX):
        if not level:
            return
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.keys()
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not value.isascii():
                _refuse_surrogates(value)
        level = below
    raise malformed(f"the body is nested deeper than {_DEPTH_MAX}", code="invalid_json")


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise malformed(
            "a text holds half of a surrogate pair, which is no character", code="invalid_json"
        ) from error


def _wrong(error: ValidationError) -> Fault:
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return malformed(f"{where or 'the body'}: {first['msg']}", where or None)
