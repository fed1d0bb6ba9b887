"""LangChain's own cache interface, for equal prompts only.

LangChain hands a cache the whole prompt as one text, without tenant, documents or question. So
nothing but the same prompt is answered, one tenant is bound to the object, and answers live no
longer than the policy's lifetime. Streams never ask such a cache: `wrap` is the better door.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.messages import AIMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, Generation

from ragcache.errors import ConfigError, MissingTenantError, NotCachedError
from ragcache.pipeline import Pipeline
from ragcache.portal import AnyCache, Bridge, Doors, submit
from ragcache.types import Answer, Call, Chunk, Completion, Document, Request, TenantId

from .replies import completion_of_message, no_usage

_NAMESPACE = "langchain-llm-cache"


class RagCacheLLMCache(BaseCache):
    """An exact cache for `set_llm_cache(...)`, bound to one tenant.

        set_llm_cache(RagCacheLLMCache(ragcache.connect(settings), tenant="acme"))

    What is stored passes the same admission as any answer: nothing that calls tools, was cut
    off, refused, or holds what the prompt does not.

    Args:
        cache: `ragcache.connect(...)`, or a cache opened with `async with` on the running loop
            (then only the async methods find it).
        tenant: Whose prompts these are.
        ttl_s: Lifetime of an answer in seconds, capped by the settings.

    Raises:
        MissingTenantError: The tenant is empty.
    """

    def __init__(self, cache: AnyCache, *, tenant: str, ttl_s: float | None = None) -> None:
        if not tenant:
            raise MissingTenantError
        self._doors = Doors(cache)
        self._tenant = tenant
        self._ttl_s = ttl_s

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """Return what was stored for this prompt and model, None where nothing was."""
        try:
            answer = self._bridge().answer(self._asked(prompt, llm_string), target=_Nobody())
        except NotCachedError:
            return None
        return read(answer.text)

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Store what a model said, where admission lets it."""
        said = _Said(return_val)
        if said.text:
            asked = self._asked(prompt, llm_string).replace(refresh=True, only_if_cached=False)
            self._bridge().answer(asked, target=said)

    def clear(self, **kwargs: Any) -> None:  # noqa: ARG002 -- LangChain's signature
        """Forget everything of this tenant's."""
        self._bridge().run(self._forget(self._bridge().cache))

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """Return what was stored for this prompt and model, None where nothing was."""
        try:
            answer = await self._answer(self._asked(prompt, llm_string), _Nobody())
        except NotCachedError:
            return None
        return read(answer.text)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Store what a model said, where admission lets it."""
        said = _Said(return_val)
        if said.text:
            asked = self._asked(prompt, llm_string).replace(refresh=True, only_if_cached=False)
            await self._answer(asked, said)

    async def aclear(self, **kwargs: Any) -> None:  # noqa: ARG002 -- LangChain's signature
        """Forget everything of this tenant's."""
        way = self._way()
        if isinstance(way, Bridge):
            await asyncio.wrap_future(submit(way.loop, self._forget(way.cache)))
        else:
            await self._forget(way)

    def _asked(self, prompt: str, llm_string: str) -> Request:
        digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
        return Request(
            tenant=self._tenant,
            namespace=_NAMESPACE,
            question=f"prompt {digest}",
            documents=(Document(text=prompt),),
            params={"llm": llm_string},
            ttl_s=self._ttl_s,
            exact_only=True,
            only_if_cached=True,
        )

    async def _answer(self, request: Request, target: _Nobody | _Said) -> Answer:
        way = self._way()
        if isinstance(way, Bridge):
            return await way.aanswer(request, target=target)
        return await way.answer(request, target=target)

    def _bridge(self) -> Bridge:
        bridge = self._doors.from_thread()
        if bridge is None:
            raise ConfigError(
                "this cache lives on the running event loop (or its loop has ended): use the "
                "model's async methods, or RagCacheLLMCache(ragcache.connect(settings), ...)"
            )
        return bridge

    def _way(self) -> Pipeline | Bridge:
        way = self._doors.from_loop()
        if way is None:
            raise ConfigError("the event loop that this cache lives on has ended: open it again")
        return way

    async def _forget(self, cache: Pipeline) -> None:
        if cache.store is not None:
            await cache.store.bump_epoch(TenantId(self._tenant), _NAMESPACE)


class _Nobody:
    """Is never asked: only stored answers are wanted."""

    provider = "generic"
    name = "langchain-llm-cache"
    model = ""

    async def complete(self, call: Call) -> Completion:  # noqa: ARG002 -- the protocol's signature
        raise NotCachedError

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        yield Chunk(completion=await self.complete(call))


class _Said(_Nobody):
    """Says again what a model said already, to have it admitted and stored."""

    def __init__(self, generations: Sequence[Generation]) -> None:
        self.text = write(generations)
        self._generations = generations

    async def complete(self, call: Call) -> Completion:  # noqa: ARG002 -- the protocol's signature
        first = self._generations[0]
        if not isinstance(first, ChatGeneration):
            return Completion(text=self.text, finish_reason="stop")
        said = completion_of_message(first.message, first.generation_info or {})
        return Completion(
            text=self.text,
            finish_reason=said.finish_reason or "stop",
            tool_calls=said.tool_calls,
            refusal=said.refusal,
            usage=said.usage,
        )


def write(generations: Sequence[Generation]) -> str:
    """Return generations as JSON, "" where they hold what JSON cannot."""
    try:
        return json.dumps([_written(g) for g in generations], ensure_ascii=False)
    except (TypeError, ValueError):
        return ""


def _written(generation: Generation) -> dict[str, Any]:
    out: dict[str, Any] = {"text": generation.text, "info": generation.generation_info}
    if isinstance(generation, ChatGeneration):
        out["message"] = message_to_dict(generation.message)
    return out


def read(text: str) -> list[Generation]:
    """Return generations from JSON: new objects with no id, and nothing spent."""
    return [_read(row) for row in json.loads(text)]


def _read(row: dict[str, Any]) -> Generation:
    if "message" not in row:
        return Generation(text=row["text"], generation_info=row["info"])
    (message,) = messages_from_dict([row["message"]])
    message.id = None
    if isinstance(message, AIMessage) and message.usage_metadata is not None:
        message.usage_metadata = no_usage()
    return ChatGeneration(message=message, generation_info=row["info"])
