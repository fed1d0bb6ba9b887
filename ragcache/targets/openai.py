"""Any OpenAI-compatible server, through the official client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import stamina

from ..errors import ConfigError
from ..layout import Host
from ..types import Call, Chunk, Completion
from .body import arguments
from .faults import pause_before_retry, translated
from .replies import Collected, completion_of, event_of, says_more

if TYPE_CHECKING:
    from openai import AsyncOpenAI

#: What carries the client's requests.
Transport: TypeAlias = Literal["httpx", "aiohttp"]
_USAGE_TOO = {"stream": True, "stream_options": {"include_usage": True}}


class OpenAITarget:
    """An OpenAI-compatible chat completions endpoint.

    Args:
        model: As the server calls it.
        base_url: Up to and including the version, as in `https://host/v1`; OpenAI's own if empty.
        api_key: Its key. A server without keys takes any.
        headers: Sent with each request. Neither these nor the address can be set by a request.
        timeout_s: Longest wait for the first byte of an answer, and for each further one.
        connect_s: Longest wait for a connection.
        attempts: How often a call is made where its server was not reached or is too busy; a call
            that may have been computed is never repeated.
        provider: Whose cache fields it takes (`ragcache.targets.body.DIALECTS`): "openai",
            "vllm", "qwen", ...; "generic" for none.
        roles: What the model's chat template accepts: any roles, `strict` ones (one system
            message first, alternating turns), `no_system`.
        transport: `aiohttp` takes half the processor time for each piece of a stream, and needs
            that package.
        client: A client of your own instead of `base_url`, `api_key`, `headers` and the time-outs;
            it does its own retries.

    Raises:
        ConfigError: The `openai` package is not installed, or that of the transport.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str = "",
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        connect_s: float = 10.0,
        attempts: int = 3,
        provider: str = "generic",
        roles: Host = "any",
        transport: Transport = "httpx",
        client: AsyncOpenAI | None = None,
    ) -> None:
        self.model = model
        self.provider = provider
        self._roles: Host = roles
        self._attempts = 1 if client is not None else attempts
        self._patience_s = timeout_s
        self._client = client or _client(
            base_url,
            api_key,
            headers,
            timeout_s=timeout_s,
            connect_s=connect_s,
            transport=transport,
        )
        self.name = str(self._client.base_url)
        completions = self._client.chat.completions
        self._create: Any = completions.create  # its overloads list every field
        self._open: Any = completions.with_streaming_response.create

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer.

        Raises:
            TargetError: The server failed, or could not be reached.
            RequestError: A parameter would change where the request goes.
        """
        made = self._arguments(call)
        with translated(self.name):
            reply = await self._tried(lambda: self._create(**made))
        return self._completion(reply.model_dump(mode="json"))

    async def stream(self, call: Call) -> AsyncGenerator[Chunk, None]:
        """Yield the answer in pieces; the last one carries the completion. Raises as `complete`.

        A piece that says more than text (a tool call, log probabilities) carries the server's own
        event as `raw`. Whoever stops early closes the connection, and the server stops computing.
        """
        made = {**self._arguments(call), **_USAGE_TOO}
        collected = Collected()
        async with contextlib.AsyncExitStack() as stack:
            with translated(self.name):
                reply = await self._tried(lambda: stack.enter_async_context(self._open(**made)))
                async for line in reply.iter_lines():
                    event = self._event(line)
                    if event is None:
                        continue
                    text, more = collected.take(event), says_more(event)
                    if text or more:
                        yield Chunk(text=text, raw=event if more else None)
        yield Chunk(completion=collected.completion())

    def _arguments(self, call: Call) -> dict[str, Any]:
        return arguments(call, self.provider, host=self._roles)

    def _completion(self, reply: Mapping[str, Any]) -> Completion:
        return completion_of(reply)

    def _event(self, line: str) -> Mapping[str, Any] | None:
        return event_of(line)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _tried(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call, again where that is safe. A stream is safe until it has begun."""
        if self._attempts == 1:
            return await ask()
        async for attempt in stamina.retry_context(
            on=lambda error: pause_before_retry(error, longest_s=self._patience_s),
            attempts=self._attempts,
            timeout=self._patience_s,
            wait_initial=0.2,
            wait_jitter=0.2,
        ):
            with attempt:
                return await ask()
        raise AssertionError("stamina raises or returns")  # pragma: no cover


def _client(
    base_url: str,
    api_key: str,
    headers: Mapping[str, str] | None,
    *,
    timeout_s: float,
    connect_s: float,
    transport: Transport,
) -> AsyncOpenAI:
    try:
        from openai import AsyncOpenAI, DefaultAioHttpClient, Timeout
    except ImportError as error:
        raise ConfigError(
            "OpenAITarget needs the openai package: pip install 'ragcache-middleware[openai]'"
        ) from error
    patience = Timeout(timeout_s, connect=min(connect_s, timeout_s))
    try:
        carrier = DefaultAioHttpClient(timeout=patience) if transport == "aiohttp" else None
    except RuntimeError as error:
        raise ConfigError(
            "the transport aiohttp is not installed: pip install 'ragcache-middleware[gateway]', "
            "or set api.transport = 'httpx'"
        ) from error
    return AsyncOpenAI(
        base_url=base_url or None,
        api_key=api_key or "none",
        default_headers=headers,
        timeout=patience,
        max_retries=0,
        http_client=carrier,
    )
