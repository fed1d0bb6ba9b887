"""ragcache for `create_agent`: tools in one order, documents in front, answers from the cache."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.utils.function_calling import convert_to_openai_tool

from ragcache.binding import Identity, Options, controls
from ragcache.plain import plain
from ragcache.portal import AnyCache
from ragcache.types import Answer, Call, Chunk, Completion, Document, Formatted, Request

from .asking import locate_in, params_of, question_in, switched_off
from .cached import Binding, answered, answered_here
from .chat_model import RagCacheChatModel
from .hoisting import hoist, sorted_tools
from .identity import resolve
from .inner import THREADS
from .messages import message_of, turns
from .providers import identity_of, model_name_of, provider_of
from .replies import completion_of, result_of
from .wire import Wire

try:
    from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
except ImportError as error:
    raise ImportError(
        "RagCacheMiddleware needs langchain: pip install 'ragcache-middleware[agents]'"
    ) from error


def _trace_policy() -> Any:
    """Keep prompts out of the middleware's own trace where LangChain can: the model's has them."""
    try:
        from langchain.agents.middleware.types import TracePolicy, omit_payload
    except ImportError:
        return None
    return TracePolicy(process_inputs=omit_payload)


class RagCacheMiddleware(AgentMiddleware[Any, Any, Any]):
    """Prefix layout and answer cache for an agent's model calls.

        agent = create_agent(model, tools, middleware=[RagCacheMiddleware(cache, tenant="acme")])

    Tools go out sorted by name. Documents that a retriever tool returned as its artifact
    (`response_format="content_and_artifact"`) are moved in front of the question of their turn.
    An answer from the cache ends the turn without a model call; a reply that calls tools is
    never stored, so no tool call is ever replayed. The graph's state is not changed.

    Args:
        cache: `ragcache.connect(...)`, or a cache opened with `async with` on the running loop.
        tenant: Whose requests these are; else `tenant_id` of the runtime's context says it, or of
            the config's metadata or configurable.
        principal: Who asks inside the tenant.
        provider: Which provider's cache fields may be sent: "openai", "vllm", "anthropic".
        hoist_documents: Move documents of tool messages.
        request: Further fields of every request: sharing, access, namespace, version, ttl_s, ...

    Raises:
        ConfigError: The cache is none.
        RequestError: A field of every request is unknown.
    """

    trace_policy = _trace_policy()

    def __init__(
        self,
        cache: AnyCache,
        *,
        tenant: str | None = None,
        principal: str | None = None,
        provider: str | None = None,
        hoist_documents: bool = True,
        **request: Any,
    ) -> None:
        super().__init__()
        identity = Identity(tenant=tenant, principal=principal)
        options = Options(identity=identity, provider=provider, request=request)
        self._binding = Binding(cache, options)
        self._hoists = hoist_documents

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> Any:
        """Answer a model call from the cache, or lay it out and pass it on."""
        turn = self._turn(request)
        way = self._binding.doors.from_thread()
        if way is None:
            self._binding.warn_about_loop()
            return handler(turn.request)
        asked = turn.asked.replace(no_collapse=self._binding.doors.blocks_a_loop())
        context = copy_context()

        async def call(changed: ModelRequest[Any]) -> Any:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(THREADS, context.run, handler, changed)

        return turn.response(answered_here(way, asked, turn.target(call)))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[Any]],
    ) -> Any:
        """Answer a model call from the cache, or lay it out and pass it on."""
        turn = self._turn(request)
        way = self._binding.doors.from_loop()
        if way is None:
            self._binding.warn_about_loop()
            return await handler(turn.request)
        return turn.response(await answered(way, turn.asked, turn.target(handler)))

    def _turn(self, request: ModelRequest[Any]) -> _Turn:
        model = request.model
        inner = model.inner if isinstance(model, RagCacheChatModel) else model
        plain_request = request.override(model=inner, tools=sorted_tools(request.tools))
        turn = _Turn(plain_request, self._binding, hoists=self._hoists)
        if turn.is_anonymous:
            self._binding.warn_about_tenant()
        return turn


class _Turn:
    """One model call of an agent: what it asks of the cache, and how the answer goes back."""

    def __init__(self, request: ModelRequest[Any], binding: Binding, *, hoists: bool) -> None:
        system = [request.system_message] if request.system_message else []
        messages: list[BaseMessage] = [*system, *request.messages]
        hoisted = hoist(messages) if hoists else None
        formatted, documents = (
            (hoisted.formatted, hoisted.documents) if hoisted else locate_in(messages)
        )
        self._messages = hoisted.messages if hoisted else messages
        self._systems = len(system)
        self._binding = binding
        self._formatted = formatted
        self.request = request.override(messages=_any(self._messages[self._systems :]))
        self.asked, self.is_anonymous = self._ask(messages, formatted, documents)

    def _ask(
        self, messages: Sequence[BaseMessage], formatted: Formatted, documents: Sequence[Document]
    ) -> tuple[Request, bool]:
        config = var_child_runnable_config.get() or {}
        metadata = dict(config.get("metadata") or {})
        runtime = self.request.runtime
        who = resolve(
            self._binding.options.identity,
            metadata=metadata,
            tags=tuple(config.get("tags") or ()),
            context=getattr(runtime, "context", None),
        )
        params = self._params()
        asked = Request(
            tenant=who.tenant or f"anonymous-{secrets.token_hex(16)}",
            anonymous=who.tenant is None,
            principal=who.principal,
            question=question_in(messages),
            documents=tuple(documents),
            history=tuple(message_of(m) for m in turns(messages)),
            formatted=formatted,
            params=params,
        )
        fields = dict(self._binding.options.request) | controls(metadata.get("ragcache"))
        fields |= switched_off(who, params)
        if self.request.response_format is not None:
            fields |= {"no_cache": True, "no_store": True}  # its object cannot be made from a text
        return asked.replace(**fields), who.tenant is None

    def _params(self) -> dict[str, Any]:
        request = self.request
        settings = dict(request.model_settings)
        params = params_of(request.model, None, settings)
        params["tools"] = [plain(_schema(tool)) for tool in request.tools]
        params["tool_choice"] = plain(request.tool_choice)
        params["response_format"] = plain(request.response_format)
        return params

    def target(self, handler: Callable[[ModelRequest[Any]], Awaitable[Any]]) -> _HandlerTarget:
        """Return the rest of the agent's model call as a target."""
        return _HandlerTarget(self, handler)

    def changed(self, call: Call) -> ModelRequest[Any]:
        """Return the model request as laid out."""
        messages, settings = self._wire().prepare(call, dict(self.request.model_settings))
        changes: dict[str, Any] = {"messages": messages[self._systems :]}
        if self._systems:
            changes["system_message"] = messages[0]
        return self.request.override(**changes, model_settings=settings)

    def _wire(self) -> Wire:
        model: BaseChatModel = self.request.model
        provider = self._binding.options.provider
        return Wire(
            model=model,
            messages=self._messages,
            formatted=self._formatted,
            tenant=self.asked.tenant,
            sent=self._binding.sent,
            provider=provider,
            stateless=self.is_anonymous,
            takes_markers=(provider or provider_of(model)) == "anthropic",
        )

    def response(self, answer: Answer) -> Any:
        """Return the agent's own response object, or the stored answer as a message."""
        raw = answer.completion.raw if answer.completion else None
        kept = raw.kept if isinstance(raw, _Kept) else None
        message = result_of(answer).generations[0].message
        if not isinstance(kept, ModelResponse):
            return message
        others = [m for m in kept.result if not isinstance(m, AIMessage)]
        return ModelResponse(
            result=[message, *others], structured_response=kept.structured_response
        )


class _Kept(ChatResult):
    """A result that remembers what the handler gave."""

    kept: Any = None


class _HandlerTarget:
    """The rest of an agent's model call, under the pipeline."""

    def __init__(self, turn: _Turn, handler: Callable[[ModelRequest[Any]], Awaitable[Any]]) -> None:
        model: BaseChatModel = turn.request.model
        self.provider = provider_of(model)
        self.name = identity_of(model)
        self.model = model_name_of(model)
        self._turn = turn
        self._handler = handler

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer; the model's own errors pass unchanged."""
        given = await self._handler(self._turn.changed(call))
        response = getattr(given, "model_response", given)
        messages = [response] if isinstance(response, AIMessage) else response.result
        message = next(m for m in reversed(messages) if isinstance(m, AIMessage))
        result = _Kept(generations=[ChatGeneration(message=message)], kept=response)
        return completion_of(result)

    async def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """Yield the whole answer: an agent's pieces go out by callbacks."""
        completion = await self.complete(call)
        yield Chunk(text=completion.text, completion=completion)


def _any(messages: list[BaseMessage]) -> Any:
    """Return the messages for a signature that lists every kind by name."""
    return messages


def _schema(tool: Any) -> Any:
    return tool if isinstance(tool, Mapping) else convert_to_openai_tool(tool)
