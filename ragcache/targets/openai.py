"""Any OpenAI-compatible server, through the official client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, TargetError
from ..types import Call, Chunk, Completion
from .usage import openai_usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAITarget:
    """An OpenAI-compatible chat completions endpoint.

    Args:
        model: As the server calls it.
        base_url: Up to and including the version, as in `https://host/v1`; OpenAI's own if empty.
        api_key: Its key. A server without keys takes any.
        client: A client of your own instead of `base_url`, `api_key` and `timeout_s`.
        provider: "openai" sends OpenAI's cache fields, "vllm" vLLM's, "generic" neither.

    Raises:
        ConfigError: The `openai` package is not installed.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "",
        api_key: str = "",
        timeout_s: float = 60.0,
        provider: str = "generic",
        client: AsyncOpenAI | None = None,
    ) -> None:
        self.model = model
        self.provider = provider
        self._client = client or _client(base_url, api_key, timeout_s)
        self.name = str(self._client.base_url)
        self._create: Any = self._client.chat.completions.create  # its overloads list every field

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer. Raises TargetError."""
        with _translated(self.name):
            reply = await self._create(**self._arguments(call))
        return _completion(reply.model_dump(mode="json"))

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the answer in pieces; the last one carries the completion. Raises TargetError."""
        collected = _Collected()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        with _translated(self.name):
            stream = await self._create(**self._arguments(call), **options)
            async with stream:
                async for piece in stream:
                    text = collected.take(piece.model_dump(mode="json"))
                    if text:
                        yield Chunk(text=text)
        yield Chunk(completion=collected.completion())

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _arguments(self, call: Call) -> dict[str, Any]:
        known = {k: v for k, v in call.params.items() if k in _PARAMETERS}
        extra = {k: v for k, v in call.params.items() if k not in _PARAMETERS}
        if self.provider == "vllm" and call.cache_salt:
            extra["cache_salt"] = call.cache_salt
        if self.provider == "openai" and call.prompt_cache_key:
            extra["prompt_cache_key"] = call.prompt_cache_key
        arguments: dict[str, Any] = {
            "model": call.model,
            "messages": [message.wire() for message in call.messages],
            **known,
        }
        if call.tools:
            arguments["tools"] = [dict(tool) for tool in call.tools]
        if extra:
            arguments["extra_body"] = extra
        return arguments


#: Body fields that the official client takes by name; every other one goes as an extra field.
_PARAMETERS = frozenset(
    {
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "seed",
        "n",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "presence_penalty",
        "frequency_penalty",
        "response_format",
        "tool_choice",
        "parallel_tool_calls",
        "reasoning_effort",
        "user",
    }
)


def _client(base_url: str, api_key: str, timeout_s: float) -> AsyncOpenAI:
    try:
        from openai import AsyncOpenAI
    except ImportError as error:
        raise ConfigError(
            "OpenAITarget needs the openai package: pip install 'ragcache-middleware[openai]'"
        ) from error
    return AsyncOpenAI(
        base_url=base_url or None, api_key=api_key or "none", timeout=timeout_s, max_retries=0
    )


@contextlib.contextmanager
def _translated(name: str) -> Iterator[None]:
    import openai

    try:
        yield
    except openai.APIStatusError as error:
        raise TargetError(
            f"{name} answered {error.status_code}: {error.message}",
            status=error.status_code,
            body=error.body,
        ) from error
    except openai.APITimeoutError as error:
        raise TargetError(f"{name} did not answer in time: raise api.timeout_s") from error
    except openai.APIConnectionError as error:
        raise TargetError(
            f"{name} cannot be reached ({error.__cause__ or error}): check api.base_url and that "
            "the server runs"
        ) from error
    except openai.APIError as error:
        raise TargetError(f"{name} failed: {error.message}", body=error.body) from error


def _completion(reply: dict[str, Any]) -> Completion:
    """Read a Chat Completions reply."""
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
        usage=openai_usage(reply.get("usage")),
        model=reply.get("model") or "",
        id=reply.get("id") or "",
        raw=reply,
    )


class _Collected:
    """The pieces of a stream, put together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._last: dict[str, Any] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None

    def take(self, piece: dict[str, Any]) -> str:
        """Note a piece and return its text."""
        if piece.get("error"):
            raise TargetError(f"the target broke off: {piece['error']}", body=piece)
        self._last = piece
        self._usage = piece.get("usage") or self._usage
        text = ""
        for choice in piece.get("choices") or ():
            if choice.get("index"):
                continue
            delta = choice.get("delta") or {}
            text += delta.get("content") or ""
            self._refusal.append(delta.get("refusal") or "")
            self._finish = choice.get("finish_reason") or self._finish
            for call in delta.get("tool_calls") or ():
                _merge_call(self._calls, call)
        self._text.append(text)
        return text

    def completion(self) -> Completion:
        """Return the whole answer."""
        return Completion(
            text="".join(self._text),
            finish_reason=self._finish,
            tool_calls=tuple(self._calls[at] for at in sorted(self._calls)),
            refusal="".join(self._refusal) or None,
            usage=openai_usage(self._usage),
            model=self._last.get("model") or "",
            id=self._last.get("id") or "",
        )


def _merge_call(calls: dict[int, dict[str, Any]], piece: dict[str, Any]) -> None:
    call = calls.setdefault(
        piece.get("index") or 0,
        {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
    )
    call["id"] = piece.get("id") or call["id"]
    function = piece.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""
