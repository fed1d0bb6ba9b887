"""A wrapped model that is still an instance of its own class, for code that asks for that."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel

from .cached import Binding, CachedDoors
from .inner import Inner

M = TypeVar("M", bound=BaseChatModel)
_ATTRIBUTE = "_ragcache_binding"


class SameClassDoors(CachedDoors):
    """The doors in front of a model's own class, whose methods answer a miss."""

    def _inner(self) -> Inner:
        # LangChain acquires the rate limiter of the model itself, which this is.
        return Inner.of(self, owner=super(CachedDoors, self))  # type: ignore[arg-type]  # stands before a chat model

    def _binding(self) -> Binding:
        binding: Binding = object.__getattribute__(self, "__dict__")[_ATTRIBUTE]
        return binding

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """Keep LangChain's own cache from mixing answers of the wrapped and the bare model."""
        text: str = super()._get_llm_string(stop=stop, **kwargs)  # type: ignore[misc]  # of the class behind
        return "ragcache/" + text

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return that a live cache cannot be written down."""
        return False


def same_class(model: M, binding: Binding) -> M:
    """Return a copy of the model, of a class derived from its own, with the doors in front."""
    copy = model.model_copy()
    copy.__class__ = _derived(type(model))
    copy.__dict__[_ATTRIBUTE] = binding
    return copy


@lru_cache(maxsize=64)
def _derived(kind: type[BaseChatModel]) -> Any:
    """Return the derived class; it keeps the name, which tracing and cost tables read."""
    return type(kind.__name__, (SameClassDoors, kind), {"__module__": kind.__module__})
