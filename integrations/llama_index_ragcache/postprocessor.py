"""An order of nodes that does not depend on their scores, for LLMs that are not wrapped."""

from __future__ import annotations

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from ragcache.keys import content_hash


class CanonicalOrder(BaseNodePostprocessor):
    """Sorts retrieved nodes by the hash of their content: an opt-in for unwrapped LLMs.

    A wrapped LLM does better by itself: it knows what was sent before, and leaves
    `response.source_nodes` in order of their scores, which this changes.
    """

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex knows it."""
        return "RagCacheCanonicalOrder"

    def _postprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,  # noqa: ARG002 -- LlamaIndex's signature
    ) -> list[NodeWithScore]:
        return sorted(
            nodes, key=lambda n: content_hash(n.node.get_content(metadata_mode=MetadataMode.LLM))
        )
