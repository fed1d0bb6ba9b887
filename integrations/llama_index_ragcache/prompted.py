"""What a template was filled with, carried from the template to the model's door.

`predict` formats a prompt and hands it straight on: list and string remember their variables.
Structured prediction formats elsewhere: there a context variable carries them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import BasePromptTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """The context and the question of a template, "" where it has none."""

    context: str = ""
    query: str = ""


NOTHING = Variables()


class PromptedMessages(list[ChatMessage]):
    """Messages that a template was formatted to."""

    variables: Variables = NOTHING


class PromptedText(str):
    """A text that a template was formatted to."""

    __slots__ = ("variables",)
    variables: Variables


_structured: ContextVar[Variables] = ContextVar("ragcache_li_variables", default=NOTHING)


def variables_of(prompt: BasePromptTemplate, arguments: Mapping[str, Any]) -> Variables:
    """Return what a template is filled with: given now, or bound to it before."""
    given = {**prompt.kwargs, **arguments}
    return Variables(context=_text(given.get("context_str")), query=_text(given.get("query_str")))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def prompted_messages(messages: list[ChatMessage], variables: Variables) -> list[ChatMessage]:
    """Return the messages with their variables."""
    told = PromptedMessages(messages)
    told.variables = variables
    return told


def prompted_text(text: str, variables: Variables) -> str:
    """Return the text with its variables."""
    told = PromptedText(text)
    told.variables = variables
    return told


@contextmanager
def structured(variables: Variables) -> Iterator[None]:
    """Carry the variables to the model calls inside the block."""
    token = _structured.set(variables)
    try:
        yield
    finally:
        _structured.reset(token)


def variables_behind(prompt: Any) -> Variables:
    """Return what a prompt that reaches the model was formatted from."""
    if isinstance(prompt, PromptedMessages | PromptedText):
        return prompt.variables
    return _structured.get()
