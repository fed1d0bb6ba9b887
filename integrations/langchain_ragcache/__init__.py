"""ragcache for LangChain: one line in an existing chain.

from langchain_ragcache import wrap
llm = wrap(llm, cache, tenant="acme")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import langchain_core  # noqa: F401 -- only to say what is missing
except ImportError as error:
    raise ImportError(
        "langchain_ragcache needs langchain-core: pip install 'ragcache-middleware[langchain]'"
    ) from error

from .chat_model import RagCacheChatModel
from .llm_cache import RagCacheLLMCache
from .retriever import RagCacheRetriever
from .run_tree import RagCacheCallbackHandler, install
from .wrapping import wrap

if TYPE_CHECKING:
    from .middleware import RagCacheMiddleware

__all__ = [
    "RagCacheCallbackHandler",
    "RagCacheChatModel",
    "RagCacheLLMCache",
    "RagCacheMiddleware",
    "RagCacheRetriever",
    "install",
    "wrap",
]


def __getattr__(name: str) -> Any:
    """Import the middleware when it is used: it needs `langchain`, the rest only its core."""
    if name != "RagCacheMiddleware":
        raise AttributeError(f"module 'langchain_ragcache' has no attribute {name!r}")
    from .middleware import RagCacheMiddleware

    return RagCacheMiddleware
