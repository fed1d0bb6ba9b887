"""Start, pieces and end of a call, told to LlamaIndex's watchers where no model told them.

A model announces its own calls. An answer from the cache, or from a call that another request
made, is announced here: once, and without a prompt in the old callbacks, whose token counters
would count its tokens as spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatInProgressEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionInProgressEvent,
    LLMCompletionStartEvent,
)
from llama_index.core.instrumentation.span import active_span_id
from llama_index_instrumentation import get_dispatcher

from ragcache.binding import told_of
from ragcache.types import Answer

from .forms import Prompt
from .inner import CalledTarget
from .replies import Response
from .telling import listeners

_dispatcher = get_dispatcher(__name__)


class Announcement:
    """One call that no model makes.

    Args:
        llm: The wrapped LLM.
        prompt: Messages of a chat, or the text of a completion.
        kwargs: Further arguments of the call.
    """

    def __init__(
        self, llm: Any, prompt: Sequence[ChatMessage] | str, kwargs: dict[str, Any]
    ) -> None:
        self._prompt = prompt
        self._callbacks = llm.callback_manager
        self._span_id = active_span_id.get()
        payload = _payload_of(llm)
        self._tell(self._start(payload, kwargs))
        with self._callbacks.as_trace("chat"):
            self._event_id = self._callbacks.on_event_start(
                CBEventType.LLM,
                payload={EventPayload.ADDITIONAL_KWARGS: kwargs, EventPayload.SERIALIZED: payload},
            )

    def _start(self, payload: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(self._prompt, str):
            return LLMCompletionStartEvent(
                model_dict=payload, prompt=self._prompt, additional_kwargs=kwargs
            )
        return LLMChatStartEvent(
            model_dict=payload, messages=list(self._prompt), additional_kwargs=kwargs
        )

    def piece(self, response: ChatResponse | CompletionResponse) -> None:
        """Tell of a piece of a stream."""
        if isinstance(response, CompletionResponse):
            self._tell(LLMCompletionInProgressEvent(prompt=str(self._prompt), response=response))
        else:
            self._tell(LLMChatInProgressEvent(messages=list(self._prompt), response=response))  # type: ignore[arg-type]  # a chat's prompt is messages

    def end(self, response: ChatResponse | CompletionResponse | None, *, spent: bool) -> None:
        """Tell that the call has ended, and whether a model was paid for it."""
        payload: dict[str, Any] = {}
        if isinstance(self._prompt, str):
            if isinstance(response, CompletionResponse):
                self._tell(LLMCompletionEndEvent(prompt=self._prompt, response=response))
            payload = {EventPayload.PROMPT: self._prompt, EventPayload.COMPLETION: response}
        else:
            if response is None or isinstance(response, ChatResponse):
                self._tell(LLMChatEndEvent(messages=list(self._prompt), response=response))
            payload = {EventPayload.MESSAGES: self._prompt, EventPayload.RESPONSE: response}
        self._callbacks.on_event_end(
            CBEventType.LLM,
            payload=payload if spent else {EventPayload.RESPONSE: response},
            event_id=self._event_id,
        )

    def failed(self, error: BaseException) -> None:
        """Tell that the call has failed."""
        self._tell(ExceptionEvent(exception=error))
        self._callbacks.on_event_end(
            CBEventType.LLM, payload={EventPayload.EXCEPTION: error}, event_id=self._event_id
        )

    def _tell(self, event: Any) -> None:
        event.span_id = self._span_id
        _dispatcher.event(event)


def _payload_of(llm: Any) -> dict[str, Any]:
    """Return what may be told of an LLM: never a key. Older cores have no word for it."""
    if hasattr(llm, "to_payload"):
        told: dict[str, Any] = llm.to_payload()
        return told
    return {"class_name": llm.class_name(), **llm.metadata.model_dump()}


class Telling:
    """One call, as LlamaIndex's watchers and our own listeners hear of it.

    Args:
        llm: The wrapped LLM.
        prompt: Messages of a chat, or the text of a completion.
        kwargs: Further arguments of the call.
        target: What a miss asks; a model announces its own calls.
    """

    def __init__(
        self, llm: Any, prompt: Prompt, kwargs: dict[str, Any], target: CalledTarget
    ) -> None:
        self._call = (llm, prompt, kwargs)
        self._target = target
        self._listeners = listeners()
        self._announcement: Announcement | None = None

    def piece(self, response: Response) -> None:
        """Tell of a piece of a stream."""
        if self._is_ours():
            self._announced().piece(response)

    def end(self, response: Response, answer: Answer) -> None:
        """Tell that the call has ended, and what the cache did."""
        if self._is_ours():
            self._announced().end(response, spent=self._target.called)
        for heard in self._listeners:
            heard.append(told_of(answer))

    def failed(self, error: BaseException) -> None:
        """Tell of a failure, where nobody else does."""
        if self._is_ours() and self._announcement is not None:
            self._announcement.failed(error)

    def _is_ours(self) -> bool:
        return not (self._target.called and self._target.announces)

    def _announced(self) -> Announcement:
        if self._announcement is None:
            self._announcement = Announcement(*self._call)
        return self._announcement
