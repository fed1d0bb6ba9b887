"""A chat model over one of ragcache's own targets: a server, or an engine in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LangSmithParams, LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCall,
    convert_to_openai_messages,
)
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field

from ragcache.errors import ConfigError
from ragcache.types import Call, Completion, Message, Usage

_KNOWN = frozenset({"role", "content", "name", "tool_calls", "tool_call_id"})
#: Of LangChain's own: never part of a body.
_NOT_SENT = ("ls_structured_output_format", "structured_output_format")


class TargetChatModel(BaseChatModel):
    """Asks a target. Lives on the event loop that it is called on, so only its async methods work.

    Args:
        target: `OpenAITarget(...)`, `VLLMEngineTarget(...)`, or one of your own.
        params: Sent with each call: temperature, max_tokens, ...
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    target: Any = Field(description="Who answers.")
    params: dict[str, Any] = Field(default_factory=dict)
    extra_body: dict[str, Any] | None = None

    @property
    def _llm_type(self) -> str:
        return f"ragcache-{self.target.provider}"

    @property
    def model_name(self) -> str:
        """The target's model."""
        return str(self.target.model)

    @property
    def base_url(self) -> str:
        """The target's identity: its address, or its engine."""
        return str(self.target.name)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model_name, **self.params}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = self.target.provider
        return params

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools in the form of the OpenAI API."""
        if tool_choice is not None:
            kwargs["tool_choice"] = "required" if tool_choice == "any" else tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],  # noqa: ARG002 -- LangChain's signature, as all of these
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> ChatResult:
        raise ConfigError(
            "a target answers on an event loop: use ainvoke or astream, or "
            "RagCacheChatModel(cache=ragcache.connect(settings), target=...)"
        )

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 -- LangChain's signature
        **kwargs: Any,
    ) -> ChatResult:
        completion = await self.target.complete(self._call(messages, stop, kwargs))
        return ChatResult(generations=[ChatGeneration(message=_message(completion))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 -- LangChain's signature
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for chunk in self.target.stream(self._call(messages, stop, kwargs)):
            if chunk.text:
                yield ChatGenerationChunk(message=AIMessageChunk(content=chunk.text))
            if chunk.completion is not None:
                yield ChatGenerationChunk(message=_last(chunk.completion))

    def _call(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> Call:
        """Return what the target is asked. A salt comes as the extra field that it is on the wire:
        `extra_body`, as every OpenAI-compatible model takes it.
        """
        given = {**self.params, **{k: v for k, v in kwargs.items() if k not in _NOT_SENT}}
        extra = {**(self.extra_body or {}), **(given.pop("extra_body", None) or {})}
        tools = given.pop("tools", None) or ()
        model = given.pop("model", None) or self.model_name
        if stop:
            given["stop"] = stop
        return Call(
            model=model,
            messages=tuple(_sent(body) for body in _bodies(messages)),
            tools=tuple(tools),
            cache_salt=extra.pop("cache_salt", None),
            prompt_cache_key=given.pop("prompt_cache_key", None),
            params=given | extra,
        )


def _bodies(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    bodies: Any = convert_to_openai_messages(list(messages))
    return list(bodies)


def _sent(body: Mapping[str, Any]) -> Message:
    content = body.get("content") or ""
    return Message(
        role=body["role"],
        content=content if isinstance(content, str) else tuple(content),
        name=body.get("name"),
        tool_calls=tuple(body.get("tool_calls") or ()),
        tool_call_id=body.get("tool_call_id"),
        extra={k: v for k, v in body.items() if k not in _KNOWN},
    )


def _message(completion: Completion) -> AIMessage:
    calls, invalid = _tool_calls(completion)
    return AIMessage(
        content=completion.text,
        additional_kwargs=_refusal(completion),
        response_metadata=_metadata(completion),
        usage_metadata=_usage(completion.usage),
        tool_calls=calls,
        invalid_tool_calls=invalid,
    )


def _tool_calls(completion: Completion) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    """Return the calls, and those whose arguments are no JSON object: a model may break off."""
    calls, invalid = [], []
    for call in completion.tool_calls:
        name, told = call["function"]["name"], call["function"].get("arguments") or "{}"
        try:
            args = json.loads(told)
        except ValueError as error:
            args, why = None, f"the arguments are no JSON: {error}"
        else:
            why = "the arguments are no JSON object"
        if isinstance(args, dict):
            calls.append(tool_call(name=name, args=args, id=call.get("id")))
        else:
            invalid.append(invalid_tool_call(name=name, args=told, id=call.get("id"), error=why))
    return calls, invalid


def _last(completion: Completion) -> AIMessageChunk:
    calls: list[Any] = [
        {
            "name": call["function"]["name"],
            "args": call["function"].get("arguments") or "",
            "id": call.get("id"),
            "index": at,
        }
        for at, call in enumerate(completion.tool_calls)
    ]
    return AIMessageChunk(
        content="",
        additional_kwargs=_refusal(completion),
        response_metadata=_metadata(completion),
        usage_metadata=_usage(completion.usage),
        tool_call_chunks=calls,
        chunk_position="last",
    )


def _refusal(completion: Completion) -> dict[str, Any]:
    return {"refusal": completion.refusal} if completion.refusal else {}


def _metadata(completion: Completion) -> dict[str, Any]:
    known = {"model_name": completion.model, "finish_reason": completion.finish_reason}
    return {name: value for name, value in known.items() if value}


def _usage(usage: Usage) -> UsageMetadata | None:
    if usage.input_tokens is None or usage.output_tokens is None:
        return None
    read: dict[str, int] = {}
    if usage.cached_tokens is not None:
        read["cache_read"] = usage.cached_tokens
    if usage.cache_write_tokens is not None:
        read["cache_creation"] = usage.cache_write_tokens
    thought = {} if usage.reasoning_tokens is None else {"reasoning": usage.reasoning_tokens}
    return UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_token_details=InputTokenDetails(**read),  # type: ignore[typeddict-item]  # names as above
        output_token_details=OutputTokenDetails(**thought),  # type: ignore[typeddict-item]  # as above
    )
