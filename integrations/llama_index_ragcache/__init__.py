"""ragcache for LlamaIndex: one line in an existing pipeline.

from llama_index_ragcache import wrap
Settings.llm = wrap(llm, cache, tenant="acme")
"""

from __future__ import annotations

try:
    import llama_index.core  # noqa: F401 -- only to say what is missing
except ImportError as error:
    raise ImportError(
        "llama_index_ragcache needs llama-index-core: "
        "pip install 'ragcache-middleware[llama-index]'"
    ) from error

from .capture import install
from .llm import RagCacheLLM
from .postprocessor import CanonicalOrder
from .telling import statuses
from .wrapping import wrap

__all__ = ["CanonicalOrder", "RagCacheLLM", "install", "statuses", "wrap"]
