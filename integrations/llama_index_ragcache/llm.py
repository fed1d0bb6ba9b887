"""An LLM for LlamaIndex over any of ragcache's own targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool
from pydantic import Field, PrivateAttr

from ragcache.binding import Identity, Options
from ragcache.errors import ConfigError
from ragcache.portal import AnyCache, Doors
from ragcache.protocols import Target
from ragcache.types import JsonObject

from .asking import CALL_ONLY, Asked
from .capture import install
from .doors import Bound, RagCacheDoors
from .forms import Form, Prompt
from .inner import CalledTarget, OwnTarget
from .messages import arguments_of, message_of
from .wire import with_earlier_turns


class RagCacheLLM(RagCacheDoors, FunctionCallingLLM):
    """An LLM that answers from the cache, else from a target of ragcache's own.

        Settings.llm = RagCacheLLM(cache=cache, target=OpenAITarget(...), tenant="acme")

    The target runs on the cache's loop.

    Args:
        cache: `ragcache.connect(...)`, or a cache opened with `async with` on the running loop.
        target: Who answers a miss; the cache's own where none is given.
        tenant: Whose requests these are; else each call says it, as with `wrap`.
        principal: Who asks inside the tenant.
        context_window: Tokens that the model takes.
        num_output: Tokens that it is expected to answer with.
        is_function_calling_model: Whether it takes tools.
        temperature: Sampling temperature, sent where it is given.
        max_tokens: Longest answer, sent where it is given.
        additional_kwargs: Further body fields of every call.
        request: Further fields of every request: sharing, access, namespace, version, ttl_s, ...

    Raises:
        ConfigError: There is no target, or the cache is none.
        RequestError: A field of every request is unknown.
    """

    context_window: int = Field(default=8192, description="Tokens that the model takes.")
    num_output: int = Field(default=512, description="Tokens of an answer.")
    is_function_calling_model: bool = Field(default=True, description="It takes tools.")
    temperature: float | None = Field(default=None, description="Sampling temperature.")
    max_tokens: int | None = Field(default=None, description="Longest answer.")
    additional_kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Further body fields of every call."
    )

    _ragcache: Bound = PrivateAttr()
    _target: Target = PrivateAttr()
    _ragcache_here: ClassVar[bool] = False

    def __init__(
        self,
        *,
        cache: AnyCache,
        target: Target | None = None,
        tenant: str | None = None,
        principal: str | None = None,
        request: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        doors = Doors(cache)
        target = target or doors.target
        if target is None:
            raise ConfigError("no target: pass target=, or set api.base_url and model.name")
        super().__init__(**fields)
        self._target = target
        self._ragcache = Bound(
            doors,
            Options(identity=Identity(tenant=tenant, principal=principal), request=request or {}),
        )
        install()

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows it."""
        return "ragcache_llm"

    @property
    def model(self) -> str:
        """The model's name, as its server knows it."""
        return self._target.model

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex needs to know of the model."""
        return LLMMetadata(
            context_window=self.context_window,
            num_output=self.max_tokens or self.num_output,
            is_chat_model=True,
            is_function_calling_model=self.is_function_calling_model,
            model_name=self._target.model,
        )

    # --- tools ----------------------------------------------------------------------------------

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,  # noqa: ARG002, FBT001, FBT002 -- LlamaIndex's signature
        allow_parallel_tool_calls: bool = False,  # noqa: FBT001, FBT002 -- as above
        tool_required: bool = False,  # noqa: FBT001, FBT002 -- as above
        **kwargs: Any,
    ) -> dict[str, Any]:
        messages = list(chat_history or [])
        if isinstance(user_msg, str):
            messages.append(ChatMessage(role=MessageRole.USER, content=user_msg))
        elif user_msg is not None:
            messages.append(user_msg)
        given: dict[str, Any] = {"messages": messages, **kwargs}
        if tools:
            given["tools"] = [t.metadata.to_openai_tool(skip_length_check=True) for t in tools]
            given.setdefault("tool_choice", "required" if tool_required else "auto")
            if not allow_parallel_tool_calls:
                given.setdefault("parallel_tool_calls", False)
        return given

    def get_tool_calls_from_response(
        self,
        response: ChatResponse,
        error_on_no_tool_call: bool = True,  # noqa: FBT001, FBT002 -- LlamaIndex's signature
        **_: Any,
    ) -> list[ToolSelection]:
        """Return the tool calls of a response.

        Raises:
            ValueError: There is none, and one was expected.
        """
        calls = message_of(response.message).tool_calls
        if not calls and error_on_no_tool_call:
            raise ValueError(f"Expected at least one tool call, but got {len(calls)} tool calls.")
        return [
            ToolSelection(
                tool_id=str(call.get("id") or ""),
                tool_name=call["function"]["name"],
                tool_kwargs=arguments_of(call),
            )
            for call in calls
        ]

    # --- the cache's side -----------------------------------------------------------------------

    def _ragcache_params(
        self, kwargs: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Sequence[JsonObject]]:
        sampling = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        params = {k: v for k, v in sampling.items() if v is not None}
        given = {k: v for k, v in kwargs.items() if k not in (*CALL_ONLY, "tools")}
        return {**params, **self.additional_kwargs, **given}, tuple(kwargs.get("tools") or ())

    def _ragcache_bare(self) -> Any:
        raise ConfigError(
            "this call blocks the event loop that the cache lives on: use the async methods, or "
            "ragcache.connect(settings)"
        )

    def _ragcache_target(
        self,
        form: Form,  # noqa: ARG002 -- both forms are chats here
        prompt: Prompt,  # noqa: ARG002 -- the layout's messages are sent
        asked: Asked,
        kwargs: dict[str, Any],  # noqa: ARG002 -- they are in the request's parameters
        *,
        threaded: bool,  # noqa: ARG002 -- it runs on the cache's loop
    ) -> CalledTarget:
        prepare = partial(
            with_earlier_turns,
            formatted=asked.formatted,
            tenant=asked.request.tenant,
            sent=self._ragcache.sent,
        )
        return OwnTarget(self._target, prepare)
