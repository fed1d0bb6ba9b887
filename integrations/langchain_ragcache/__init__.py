"""ragcache for LangChain: one line in an existing chain.

from langchain_ragcache import wrap
llm = wrap(llm, cache, tenant="acme")
"""

from __future__ import annotations

try:
    import langchain_core  # noqa: F401 -- only to say what is missing
except ImportError as error:
    raise ImportError(
        "langchain_ragcache needs langchain-core: pip install 'ragcache-middleware[langchain]'"
    ) from error

from .chat_model import RagCacheChatModel
from .run_tree import RagCacheCallbackHandler, install
from .wrapping import wrap

__all__ = ["RagCacheCallbackHandler", "RagCacheChatModel", "install", "wrap"]
